"""LiteRT: a training step made by TensorFlow of nothing but LiteRT's built-in operators.

Google's own recipe, a traced GradientTape, needs operators of TensorFlow that LiteRT's packages no longer run; so the
models have gradients in terms of built-in ones (litert_models.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from peers.base import Cannot, Step
from peers.litert_models import MODELS
from workloads import ADAMW, Batch, Workload

PACKAGES = ("ai-edge-litert", "tensorflow", "numpy")


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
    module = _trainer(tf, weights, MODELS[workload.name](tf, len(labels)), workload.lr, images.shape)
    path = str(folder / "saved")
    tf.saved_model.save(module, path, signatures={"train": module.train.get_concrete_function()})
    converter = tf.lite.TFLiteConverter.from_saved_model(path)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    converter.experimental_enable_resource_variables = True
    (folder / "step.tflite").write_bytes(converter.convert())
    return (folder / "step.tflite").stat().st_size


def _layout(name: str, value: Any) -> Any:
    """PyTorch's layout as TensorFlow's: inputs before outputs, channels last."""
    if name == "fc.weight" and value.shape[1] == 1568:
        return value.reshape(10, 32, 7, 7).transpose(2, 3, 1, 0).reshape(1568, 10)
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def _trainer(tf: Any, weights: dict[str, Any], logits: Callable[..., Any], lr: float, shape: tuple[int, ...]) -> Any:
    beta1, beta2 = ADAMW["beta1"], ADAMW["beta2"]
    (classes,) = list(weights.values())[-1].shape

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
                loss = -tf.reduce_sum(likelihoods * tf.one_hot(labels, classes)) / shape[0]
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
