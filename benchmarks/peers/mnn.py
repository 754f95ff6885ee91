"""MNN's Python training interface. Its converter is not used: it reports what it does to a server when it starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from peers.base import Cannot, Step
from peers.mnn_models import MODELS
from workloads import ADAMW, Batch, Workload

PACKAGES = ("MNN", "numpy")


def imports(workload: Workload, variant: str) -> None:
    """The package."""
    import MNN  # noqa: F401


def prepare(workload: Workload, variant: str, folder: Path) -> None:
    """The program is Python."""
    if workload.update:
        raise Cannot("MNN has no update without a model.")
    if workload.name not in MODELS:
        raise Cannot("no model of it has been written with MNN's operators; converters would be needed for that.")


def load(workload: Workload, variant: str, folder: Path, threads: int) -> Step:
    """A step of its Adam."""
    import MNN
    from MNN import expr

    expr.lazy_eval(True)
    expr.set_thread_number(threads)
    module, names = MODELS[workload.name]()
    module.train(True)
    with np.load(folder.parent / "weights.npz") as arrays:
        classes = arrays[names[-1]].size
        # Its parameters come in the reverse order of their making.
        for variable, name in zip(module.parameters, reversed(names), strict=True):
            variable.write(np.ascontiguousarray(arrays[name]).reshape(variable.shape))
    optimizer = MNN.optim.ADAM(module, workload.lr, ADAMW["beta1"], ADAMW["beta2"], 0.0, ADAMW["eps"])

    def step(batch: Batch) -> float:
        inputs, labels = batch
        given = expr.const(inputs, list(inputs.shape), expr.NCHW)
        wanted = expr.one_hot(expr.const(labels.astype(np.int32), [len(labels)], expr.NCHW, expr.int), classes, 1, 0)
        loss = MNN.nn.loss.cross_entropy(module.forward(given), wanted)
        value = float(loss.read())  # it is computed when it is read: after the step, with the new weights
        optimizer.step(loss)
        return value

    return step
