"""Models for LiteRT, in TensorFlow: whose gradients LiteRT has no built-in operator, they give themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["MODELS"]

# From weights by PyTorch's names, in TensorFlow's layout, and inputs.
Logits = Callable[[dict[str, Any], Any], Any]


def _relu(tf: Any) -> Callable[[Any], Any]:
    def relu(x: Any) -> Any:
        return tf.nn.relu(x), lambda gradient: gradient * tf.cast(x > 0, tf.float32)

    return tf.custom_gradient(relu)  # type: ignore[no-any-return] # untyped package


def _mlp(tf: Any, batch: int) -> Logits:
    relu = _relu(tf)

    def logits(weights: dict[str, Any], x: Any) -> Any:
        x = relu(tf.matmul(x, weights["fc1.weight"]) + weights["fc1.bias"])
        x = relu(tf.matmul(x, weights["fc2.weight"]) + weights["fc2.bias"])
        return tf.matmul(x, weights["fc3.weight"]) + weights["fc3.bias"]

    return logits


def _cnn(tf: Any, batch: int) -> Logits:
    relu = _relu(tf)

    def patches(x: Any, size: int, channels: int) -> Any:
        """Each pixel's neighbourhood in a row, for a product with the kernels."""
        places = [(row, column) for row in range(3) for column in range(3)]

        def forward(x: Any) -> Any:
            padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
            found = [padded[:, row : row + size, column : column + size] for row, column in places]

            def backward(gradient: Any) -> Any:
                parts = tf.split(tf.reshape(gradient, [batch, size, size, 9 * channels]), 9, axis=-1)
                spread = [
                    tf.pad(part, [[0, 0], [row, 2 - row], [column, 2 - column], [0, 0]])
                    for part, (row, column) in zip(parts, places, strict=True)
                ]
                return tf.add_n(spread)[:, 1 : size + 1, 1 : size + 1]

            return tf.reshape(tf.concat(found, -1), [batch * size * size, 9 * channels]), backward

        return tf.custom_gradient(forward)(x)

    def pool(x: Any, size: int, channels: int) -> Any:
        half = size // 2

        def wide(y: Any) -> Any:
            tiled = tf.tile(tf.reshape(y, [batch, half, 1, half, 1, channels]), [1, 1, 2, 1, 2, 1])
            return tf.reshape(tiled, [batch, size, size, channels])

        def forward(x: Any) -> Any:
            y = tf.nn.max_pool2d(x, 2, 2, "VALID")
            # Behind a ReLU only zeros tie, whose gradient ends there.
            return y, lambda gradient: wide(gradient) * tf.cast(tf.equal(x, wide(y)), tf.float32)

        return tf.custom_gradient(forward)(x)

    def logits(weights: dict[str, Any], x: Any) -> Any:
        for place, size, inputs, outputs in ((1, 28, 1, 16), (2, 14, 16, 32)):
            kernel = tf.reshape(weights[f"conv{place}.weight"], [9 * inputs, outputs])
            x = tf.matmul(patches(x, size, inputs), kernel) + weights[f"conv{place}.bias"]
            x = pool(relu(tf.reshape(x, [batch, size, size, outputs])), size, outputs)
        return tf.matmul(tf.reshape(x, [batch, 1568]), weights["fc.weight"]) + weights["fc.bias"]

    return logits


def _recurrent(tf: Any, batch: int, kind: str) -> Logits:
    def sigmoid_with_gradient(x: Any) -> Any:
        y = tf.sigmoid(x)
        return y, lambda gradient: gradient * y * (1 - y)

    def tanh_with_gradient(x: Any) -> Any:
        y = tf.tanh(x)
        return y, lambda gradient: gradient * (1 - y * y)

    sigmoid, tanh = tf.custom_gradient(sigmoid_with_gradient), tf.custom_gradient(tanh_with_gradient)

    def gru(given: Any, told: Any, hidden: Any, cell: Any) -> tuple[Any, Any]:
        (reset, update, new), (reset_told, update_told, new_told) = tf.split(given, 3, -1), tf.split(told, 3, -1)
        keep = sigmoid(update + update_told)
        return (1 - keep) * tanh(new + sigmoid(reset + reset_told) * new_told) + keep * hidden, cell

    def lstm(given: Any, told: Any, hidden: Any, cell: Any) -> tuple[Any, Any]:
        enter, forget, new, leave = tf.split(given + told, 4, -1)
        cell = sigmoid(forget) * cell + sigmoid(enter) * tanh(new)
        return sigmoid(leave) * tanh(cell), cell

    def logits(weights: dict[str, Any], x: Any) -> Any:
        frames, bands = x.shape[1:]
        rows = tf.matmul(tf.reshape(x, [batch * frames, bands]), weights["cell.weight_ih_l0"])
        given = tf.unstack(tf.reshape(rows + weights["cell.bias_ih_l0"], [batch, frames, -1]), axis=1)
        hidden = cell = tf.zeros([batch, weights["fc.weight"].shape[0]])
        for each in given:
            told = tf.matmul(hidden, weights["cell.weight_hh_l0"]) + weights["cell.bias_hh_l0"]
            hidden, cell = (gru if kind == "GRU" else lstm)(each, told, hidden, cell)
        return tf.matmul(hidden, weights["fc.weight"]) + weights["fc.bias"]

    return logits


MODELS: dict[str, Callable[[Any, int], Logits]] = {
    "mlp-1": _mlp,
    "mlp-32": _mlp,
    "cnn": _cnn,
    "gru": lambda tf, batch: _recurrent(tf, batch, "GRU"),
    "lstm": lambda tf, batch: _recurrent(tf, batch, "LSTM"),
}
