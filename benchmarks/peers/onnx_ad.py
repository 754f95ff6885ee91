"""onnx-ad's gradients on ONNX Runtime. It has no optimizer: AdamW is numpy, and weights are fed at every step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peers.base import Cannot, Step
from peers.targets import one_hot
from workloads import ADAMW, Batch, Workload

PACKAGES = ("onnx-ad", "onnxruntime", "onnx", "numpy")


def imports(workload: Workload, variant: str) -> None:
    """The runtime: gradients are made beforehand."""
    import onnxruntime  # noqa: F401


def prepare(workload: Workload, variant: str, folder: Path) -> int:
    """Make a model of the gradients, whose weights are inputs."""
    if workload.update:
        raise Cannot("onnx-ad has no optimizer.")
    import onnx
    from onnx_ad import reverse

    model = onnx.shape_inference.infer_shapes(onnx.load(folder.parent / "loss.onnx"))
    parameters = json.loads((folder.parent / "loss.json").read_text())
    values = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    for name in parameters:
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, values[name].shape))
    kept = [each for each in model.graph.initializer if each.name not in set(parameters)]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    onnx.save(reverse(model, inputs=parameters, outputs=["loss"], layout="onnx"), folder / "gradients.onnx")
    first: dict[str, Any] = {name: values[name] for name in parameters}
    np.savez(folder / "parameters.npz", **first)
    return sum((folder / name).stat().st_size for name in ("gradients.onnx", "parameters.npz"))


def load(workload: Workload, variant: str, folder: Path, threads: int) -> Step:
    """Run the gradients, then AdamW."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(folder / "gradients.onnx", options, providers=["CPUExecutionProvider"])
    with np.load(folder / "parameters.npz") as arrays:
        weights = {name: arrays[name] for name in arrays.files}
    update = AdamW(weights, workload.lr)
    (seed,) = (each for each in session.get_inputs() if each.name == "adj_loss")
    classes = session.get_inputs()[1].shape[1]
    ones = np.ones([size if isinstance(size, int) else 1 for size in seed.shape], np.float32)
    outputs = ["loss", *(f"adj_{name}" for name in weights)]

    def step(batch: Batch) -> float:
        inputs, labels = batch
        loss, *gradients = session.run(
            outputs, {"inputs": inputs, "targets": one_hot(labels, classes), seed.name: ones, **weights}
        )
        update({name: found.reshape(weights[name].shape) for name, found in zip(weights, gradients, strict=True)})
        return float(loss)

    return step


class AdamW:
    """AdamW in numpy, in place."""

    def __init__(self, weights: dict[str, NDArray[np.float32]], lr: float) -> None:
        self.weights, self.lr, self.count = weights, lr, 0
        self.means = {name: np.zeros_like(value) for name, value in weights.items()}
        self.squares = {name: np.zeros_like(value) for name, value in weights.items()}

    def __call__(self, gradients: dict[str, Any]) -> None:
        """Update the weights."""
        beta1, beta2 = ADAMW["beta1"], ADAMW["beta2"]
        self.count += 1
        rate, root = self.lr / (1 - beta1**self.count), (1 - beta2**self.count) ** 0.5
        for name, gradient in gradients.items():
            weight, mean, square = self.weights[name], self.means[name], self.squares[name]
            weight *= 1 - self.lr * ADAMW["weight_decay"]
            mean *= beta1
            mean += (1 - beta1) * gradient
            square *= beta2
            square += (1 - beta2) * np.square(gradient)
            weight -= rate * mean / (np.sqrt(square) / root + ADAMW["eps"])
