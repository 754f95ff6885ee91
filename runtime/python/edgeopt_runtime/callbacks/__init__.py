"""Callbacks of `fit`: stop early, keep the best, write down what happened.

Each is called as ``callback(session, info)`` after every step and every epoch, like any function that is given to
``session.fit(..., callbacks=[...])``. Rates that follow the loss are in `edgeopt_runtime.rates`.
"""

from edgeopt_runtime.callbacks.checkpoint import BestCheckpoint
from edgeopt_runtime.callbacks.logs import CSVLog, JSONLinesLog
from edgeopt_runtime.callbacks.stopping import EarlyStopping
from edgeopt_runtime.callbacks.tensorboard import TensorBoard

__all__ = ["BestCheckpoint", "CSVLog", "EarlyStopping", "JSONLinesLog", "TensorBoard"]
