"""MNN's Python training interface. Its converter is not used: it reports what it does to a server when it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from peers.base import Cannot, Step
from workloads import ADAMW, Batch, Workload

PACKAGES = ("MNN", "numpy")

MODELS = ("mlp-1", "mlp-32", "cnn")


def imports(workload: Workload, variant: str) -> None:
    """The package."""
    import MNN  # noqa: F401


def prepare(workload: Workload, variant: str, folder: Path) -> None:
    """The program is Python."""
    if workload.update:
        raise Cannot("MNN has no update without a model.")
    if workload.name not in MODELS:
        raise Cannot("no model of it has been written with MNN's operators; converters would be needed for that.")


def _perceptron() -> Any:
    from MNN import expr, nn

    class Perceptron(nn.Module):  # type: ignore[misc] # untyped package
        """784-512-256-10."""

        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.fc3 = nn.linear(784, 512), nn.linear(512, 256), nn.linear(256, 10)

        def forward(self, x: Any) -> Any:
            """Probabilities, which its cross entropy wants."""
            return expr.softmax(self.fc3(expr.relu(self.fc2(expr.relu(self.fc1(x))))), 1)

    return Perceptron()


def _convolutional() -> Any:
    from MNN import expr, nn

    class Convolutional(nn.Module):  # type: ignore[misc] # untyped package
        """Two convolutions and a linear layer."""

        def __init__(self) -> None:
            super().__init__()
            # Without this mode it ignores the padding.
            padding = {"padding": [1, 1], "padding_mode": expr.Padding_Mode.CAFFE}
            self.conv1, self.conv2 = nn.conv(1, 16, [3, 3], **padding), nn.conv(16, 32, [3, 3], **padding)
            self.fc = nn.linear(1568, 10)

        def forward(self, x: Any) -> Any:
            """Probabilities, which its cross entropy wants."""
            x = expr.convert(x, expr.NC4HW4)
            x = expr.max_pool(expr.relu(self.conv1(x)), [2, 2], [2, 2])
            x = expr.max_pool(expr.relu(self.conv2(x)), [2, 2], [2, 2])
            return expr.softmax(self.fc(expr.reshape(expr.convert(x, expr.NCHW), [0, -1])), 1)

    return Convolutional()


def load(workload: Workload, variant: str, folder: Path, threads: int) -> Step:
    """A step of its Adam."""
    import MNN
    from MNN import expr

    expr.lazy_eval(True)
    expr.set_thread_number(threads)
    module = _convolutional() if workload.name == "cnn" else _perceptron()
    module.train(True)
    with np.load(folder.parent / "weights.npz") as arrays:
        # Its parameters come in the reverse order of their making.
        for variable, name in zip(module.parameters, reversed(arrays.files), strict=True):
            variable.write(np.ascontiguousarray(arrays[name]).reshape(variable.shape))
    optimizer = MNN.optim.ADAM(module, workload.lr, ADAMW["beta1"], ADAMW["beta2"], 0.0, ADAMW["eps"])

    def step(batch: Batch) -> float:
        inputs, labels = batch
        given = expr.const(inputs, list(inputs.shape), expr.NCHW)
        wanted = expr.one_hot(expr.const(labels.astype(np.int32), [len(labels)], expr.NCHW, expr.int), 10, 1, 0)
        loss = MNN.nn.loss.cross_entropy(module.forward(given), wanted)
        value = float(loss.read())  # it is computed when it is read: after the step, with the new weights
        optimizer.step(loss)
        return value

    return step
