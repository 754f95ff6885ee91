"""Update rules: pure functions of arrays that run under numpy, torch and the tracer."""

from __future__ import annotations

from edgeopt.optimizers.adam import Adam, AdamW
from edgeopt.optimizers.base import Optimizer
from edgeopt.optimizers.registry import OPTIMIZERS
from edgeopt.optimizers.sgd import SGD

__all__ = ["OPTIMIZERS", "SGD", "Adam", "AdamW", "Optimizer"]
