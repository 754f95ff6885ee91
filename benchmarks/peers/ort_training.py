"""onnxruntime-training's artifacts, made and run as its documentation says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from peers.base import Cannot, Step
from workloads import ADAMW, Batch, Workload

PACKAGES = ("onnxruntime-training", "torch", "onnx", "numpy")

FILES = ("training_model.onnx", "eval_model.onnx", "optimizer_model.onnx", "checkpoint")


def imports(workload: Workload, variant: str) -> None:
    """The package imports torch too."""
    from onnxruntime.training import api  # noqa: F401


def prepare(workload: Workload, variant: str, folder: Path) -> int:
    """Generate the artifacts, with a block for AdamW, whose decay the plain function has no argument for."""
    if workload.update:
        raise Cannot("onnxruntime-training has no update without a model.")
    import onnx
    from onnxruntime.training import artifacts, onnxblock

    class AdamW(onnxblock.optim.AdamW):  # type: ignore[misc] # untyped package
        """The settings of all others."""

        def __init__(self) -> None:
            betas = (ADAMW["beta1"], ADAMW["beta2"])
            super().__init__(betas=betas, eps=ADAMW["eps"], weight_decay=ADAMW["weight_decay"])

    model = onnx.load(folder.parent / "logits.onnx")
    trained = json.loads((folder.parent / "logits.json").read_text())
    floats = [each.name for each in model.graph.initializer if each.data_type == onnx.TensorProto.FLOAT]
    if missing := set(trained) - set(floats):
        raise Cannot(f"torch's exporter has transformed weights, {min(missing)} among them.")
    artifacts.generate_artifacts(
        model,
        requires_grad=trained,
        frozen_params=[name for name in floats if name not in trained],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=AdamW(),
        artifact_directory=str(folder),
    )
    return sum((folder / name).stat().st_size for name in FILES if (folder / name).exists())


def load(workload: Workload, variant: str, folder: Path, threads: int) -> Step:
    """A step of the module and its optimizer."""
    import onnxruntime
    from onnxruntime.training import api

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    state = api.CheckpointState.load_checkpoint(str(folder / "checkpoint"))
    # Without the model for evaluation, which is invalid where BatchNorm trains.
    module = api.Module(str(folder / "training_model.onnx"), state, session_options=options)
    optimizer = api.Optimizer(str(folder / "optimizer_model.onnx"), module)
    optimizer.set_learning_rate(workload.lr)
    module.train()

    def step(batch: Batch) -> float:
        inputs, labels = batch
        loss = module(inputs, np.ascontiguousarray(labels.reshape(-1)))
        optimizer.step()
        module.lazy_reset_grad()
        return float(loss)

    return step
