"""What is no model, and what to give in its place."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from edgeopt.components import described
from edgeopt.errors import SignatureError, UnsupportedModelError
from edgeopt.losses import Loss

__all__ = ["refuse_labels", "refuse_model"]

# By package and class, the longer one first.
_INSTEAD = {
    ("torch", "ExportedProgram"): "its module was traced for one mode only; give the torch.nn.Module it was made of",
    ("torch", "ONNXProgram"): "its weights may be folded; give the torch.nn.Module it was made of",
    ("onnxruntime", "InferenceSession"): "it keeps the graph to itself; give the path of its file",
    ("keras", ""): 'write it to a file, model.export("model.onnx", format="onnx"), and give its path',
    ("tensorflow", ""): "write it to a file with tf2onnx, and give its path",
    ("flax", ""): "write it to a file with jax2onnx, and give its path",
    ("jax", ""): "write it to a file with jax2onnx, and give its path",
    (
        "sklearn",
        "",
    ): "write it to a file with skl2onnx, and give its path; what it learned by other means than gradients stays",
}


def refuse_labels(module: Any, example_inputs: Any, output: str | None, loss: Loss) -> None:
    """Refuse labels among the examples of a model that takes them as an option, as those of transformers do.

    Raises:
        SignatureError: There are some, so that the model's first output is a loss of its own; and no other was named.
    """
    if all(name is not None for _, each in loss.parts() for name in each.outputs()):
        return
    labels = example_inputs.get("labels") if isinstance(example_inputs, Mapping) else None
    forward = inspect.signature(module.forward).parameters
    if labels is not None and output is None and "labels" in forward and forward["labels"].default is None:
        raise SignatureError(
            "With labels the model computes a loss of its own; leave them out of example_inputs, since the loss here "
            "asks for them in each batch, as its target. To minimise the model's own, give "
            "loss=edgeopt.losses.FromOutput('loss'). Or name the output that the loss reads: output='logits'."
        )


def refuse_model(model: Any) -> UnsupportedModelError:
    """The error about something that is neither a module nor a file."""
    if isinstance(model, type):
        return UnsupportedModelError(f"{model.__name__} is a class; give an instance, {model.__name__}(...).")
    if isinstance(model, Mapping):
        return UnsupportedModelError(
            "Weights alone are no model; load them, model.load_state_dict(...), and give the torch.nn.Module."
        )
    packages = {(base.__module__ or "").partition(".")[0]: base.__name__ for base in reversed(type(model).__mro__)}
    for (package, name), instead in _INSTEAD.items():
        if package in packages and (not name or type(model).__name__ == name):
            return UnsupportedModelError(f"Cannot export {described(model)}: {instead}.")
    return UnsupportedModelError(
        f"Cannot export {described(model)}; give a torch.nn.Module or an ONNX file (path, bytes or ModelProto)."
    )
