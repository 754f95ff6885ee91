"""onnxsim's training loop: its gradients and its Adam, as one graph on ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from peers.base import Cannot, Step
from peers.targets import one_hot
from workloads import Batch, Workload

PACKAGES = ("onnxsim", "onnxruntime", "onnx")


def imports(workload: Workload, variant: str) -> None:
    """The package, which makes its graphs where they run."""
    import onnxruntime  # noqa: F401
    import onnxsim  # noqa: F401


def prepare(workload: Workload, variant: str, folder: Path) -> int:
    """The loss with its shapes settled; the step's graph is made when it is first called."""
    if workload.update:
        raise Cannot("onnxsim has no update without a model.")
    import onnx
    import onnx.version_converter
    import onnxsim

    # The graphs of its steps are of opset 17, whatever the model is of, and that has no such attribute.
    newer = onnx.load(folder.parent / "loss.onnx")
    for node in newer.graph.node:
        for attribute in [each for each in node.attribute if each.name == "noop_with_empty_axes" and each.i == 0]:
            node.attribute.remove(attribute)
    older = onnx.version_converter.convert_version(newer, 17)
    model, _ = onnxsim.simplify(older, skipped_optimizers=["fuse_consecutive_log_softmax"])
    onnx.save(model, folder / "loss.onnx")
    return (folder / "loss.onnx").stat().st_size


def load(workload: Workload, variant: str, folder: Path, threads: int) -> Step:
    """A call of the loop."""
    import onnx
    import onnxruntime
    from onnxsim import compile_training_loop

    session = onnxruntime.InferenceSession

    def with_threads(model: Any, sess_options: Any = None, **settings: Any) -> Any:
        # The loop takes providers but no options.
        options = sess_options or onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        return session(model, sess_options=options, **settings)

    onnxruntime.InferenceSession = with_threads
    parameters = json.loads((folder.parent / "loss.json").read_text())
    model = onnx.load(folder / "loss.onnx")
    classes = model.graph.input[1].type.tensor_type.shape.dim[1].dim_value
    loop = compile_training_loop(model, "loss", parameters)

    def step(batch: Batch) -> float:
        inputs, labels = batch
        return float(loop({"inputs": inputs, "targets": one_hot(labels, classes)}, lr=workload.lr))

    return step
