"""Models with MNN's operators; each comes with PyTorch's names of its parameters, in the order of their making."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["MODELS"]

Model = tuple[Any, list[str]]


def _names(*layers: str) -> list[str]:
    return [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")]


def _perceptron() -> Model:
    from MNN import expr, nn

    class Perceptron(nn.Module):  # type: ignore[misc] # untyped package
        """784-512-256-10."""

        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.fc3 = nn.linear(784, 512), nn.linear(512, 256), nn.linear(256, 10)

        def forward(self, x: Any) -> Any:
            """Probabilities, which its cross entropy wants."""
            return expr.softmax(self.fc3(expr.relu(self.fc2(expr.relu(self.fc1(x))))), 1)

    return Perceptron(), _names("fc1", "fc2", "fc3")


def _convolutional() -> Model:
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

    return Convolutional(), _names("conv1", "conv2", "fc")


def _recurrent(kind: str) -> Model:
    from MNN import expr, nn

    from workloads.speech import BANDS, BATCH, CLASSES, FRAMES, UNITS

    gates = 3 if kind == "GRU" else 4

    class Recurrent(nn.Module):  # type: ignore[misc] # untyped package
        """One recurrent layer, frame by frame."""

        def __init__(self) -> None:
            super().__init__()
            self.given, self.told = nn.linear(BANDS, gates * UNITS), nn.linear(UNITS, gates * UNITS)
            self.fc = nn.linear(UNITS, CLASSES)

        def forward(self, x: Any) -> Any:
            """Probabilities, which its cross entropy wants."""
            rows = self.given.forward(expr.reshape(x, [BATCH * FRAMES, BANDS]))
            frames = expr.unstack(expr.reshape(rows, [BATCH, FRAMES, gates * UNITS]), 1)
            hidden = cell = expr.fill([BATCH, UNITS], 0.0)
            for frame in frames:
                hidden, cell = self.step(frame, self.told.forward(hidden), hidden, cell)
            return expr.softmax(self.fc.forward(hidden), 1)

        def step(self, frame: Any, told: Any, hidden: Any, cell: Any) -> tuple[Any, Any]:
            """PyTorch's equations."""
            if kind == "GRU":
                (reset, update, new), (reset_told, update_told, new_told) = (
                    expr.split(each, [UNITS] * 3, 1) for each in (frame, told)
                )
                keep = expr.sigmoid(update + update_told)
                found = expr.tanh(new + expr.sigmoid(reset + reset_told) * new_told)
                return found + keep * (hidden - found), cell
            enter, forget, new, leave = expr.split(frame + told, [UNITS] * 4, 1)
            cell = expr.sigmoid(forget) * cell + expr.sigmoid(enter) * expr.tanh(new)
            return expr.sigmoid(leave) * expr.tanh(cell), cell

    layers = ("cell.weight_ih_l0", "cell.bias_ih_l0", "cell.weight_hh_l0", "cell.bias_hh_l0")
    return Recurrent(), [*layers, *_names("fc")]


MODELS: dict[str, Callable[[], Model]] = {
    "mlp-1": _perceptron,
    "mlp-32": _perceptron,
    "cnn": _convolutional,
    "gru": lambda: _recurrent("GRU"),
    "lstm": lambda: _recurrent("LSTM"),
}
