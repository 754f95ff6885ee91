"""LiteRT: a training step made by TensorFlow of nothing but LiteRT's built-in operators.

Google's own recipe, a traced GradientTape, needs operators of TensorFlow that LiteRT's packages no longer run; so the
gradients of ReLU, pooling and convolution are given here in terms of built-in ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from peers.base import Cannot, Step
from workloads import ADAMW, Batch, Workload

PACKAGES = ("ai-edge-litert", "tensorflow", "numpy")

MODELS = ("mlp-1", "mlp-32", "cnn")


def imports(workload: Workload, variant: str) -> None:
    """Only the interpreter."""
    from ai_edge_litert.interpreter import Interpreter  # noqa: F401


def prepare(workload: Workload, variant: str, folder: Path) -> int:
    """Trace one step with variables as its state, and convert it."""
    if workload.update:
        raise Cannot("LiteRT has no optimizer.")
    if workload.name not in MODELS:
        raise Cannot("its gradients have not been written with LiteRT's built-in operators; others no longer run.")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    with np.load(folder.parent / "weights.npz") as arrays:
        weights = {name: _layout(name, arrays[name]) for name in arrays.files}
    inputs, labels = workload.batch(0)
    images = inputs.transpose(0, 2, 3, 1) if inputs.ndim == 4 else inputs
    logits = _cnn(tf, len(labels)) if workload.name == "cnn" else _mlp(tf)
    module = _trainer(tf, weights, logits, workload.lr, images.shape)
    path = str(folder / "saved")
    tf.saved_model.save(module, path, signatures={"train": module.train.get_concrete_function()})
    converter = tf.lite.TFLiteConverter.from_saved_model(path)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    converter.experimental_enable_resource_variables = True
    (folder / "step.tflite").write_bytes(converter.convert())
    return (folder / "step.tflite").stat().st_size


def _layout(name: str, value: Any) -> Any:
    """PyTorch's layout as TensorFlow's: inputs before outputs, channels last."""
    if name == "fc.weight":
        return value.reshape(10, 32, 7, 7).transpose(2, 3, 1, 0).reshape(1568, 10)
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def _relu(tf: Any) -> Callable[[Any], Any]:
    def relu(x: Any) -> Any:
        return tf.nn.relu(x), lambda gradient: gradient * tf.cast(x > 0, tf.float32)

    return tf.custom_gradient(relu)  # type: ignore[no-any-return] # untyped package


def _mlp(tf: Any) -> Callable[[dict[str, Any], Any], Any]:
    relu = _relu(tf)

    def logits(weights: dict[str, Any], x: Any) -> Any:
        x = relu(tf.matmul(x, weights["fc1.weight"]) + weights["fc1.bias"])
        x = relu(tf.matmul(x, weights["fc2.weight"]) + weights["fc2.bias"])
        return tf.matmul(x, weights["fc3.weight"]) + weights["fc3.bias"]

    return logits


def _cnn(tf: Any, batch: int) -> Callable[[dict[str, Any], Any], Any]:
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


def _trainer(tf: Any, weights: dict[str, Any], logits: Callable[..., Any], lr: float, shape: tuple[int, ...]) -> Any:
    beta1, beta2 = ADAMW["beta1"], ADAMW["beta2"]

    class Trainer(tf.Module):  # type: ignore[misc] # untyped package
        """The step, and its state."""

        def __init__(self) -> None:
            super().__init__()
            self.weights = {name: tf.Variable(value) for name, value in weights.items()}
            self.means = {name: tf.Variable(tf.zeros_like(value)) for name, value in weights.items()}
            self.squares = {name: tf.Variable(tf.zeros_like(value)) for name, value in weights.items()}
            self.count = tf.Variable(0.0)

        @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32), tf.TensorSpec(shape[:1], tf.int32)])  # type: ignore[untyped-decorator] # untyped package
        def train(self, inputs: Any, labels: Any) -> dict[str, Any]:
            """One step of AdamW."""
            with tf.GradientTape() as tape:
                likelihoods = tf.nn.log_softmax(logits(self.weights, inputs))
                loss = -tf.reduce_sum(likelihoods * tf.one_hot(labels, 10)) / shape[0]
            gradients = tape.gradient(loss, list(self.weights.values()))
            self.count.assign_add(1.0)
            for name, gradient in zip(self.weights, gradients, strict=True):
                weight, mean, square = self.weights[name], self.means[name], self.squares[name]
                mean.assign(beta1 * mean + (1 - beta1) * gradient)
                square.assign(beta2 * square + (1 - beta2) * gradient * gradient)
                scale = tf.sqrt(square / (1 - tf.pow(beta2, self.count))) + ADAMW["eps"]
                decayed = weight * (1 - lr * ADAMW["weight_decay"])
                weight.assign(decayed - lr / (1 - tf.pow(beta1, self.count)) * mean / scale)
            return {"loss": loss}

    return Trainer()


def load(workload: Workload, variant: str, folder: Path, threads: int) -> Step:
    """The signature of the step."""
    from ai_edge_litert.interpreter import Interpreter

    train = Interpreter(str(folder / "step.tflite"), num_threads=threads).get_signature_runner("train")

    def step(batch: Batch) -> float:
        inputs, labels = batch
        images = np.ascontiguousarray(inputs.transpose(0, 2, 3, 1)) if inputs.ndim == 4 else inputs
        return float(train(inputs=images, labels=labels.astype(np.int32))["loss"])

    return step
