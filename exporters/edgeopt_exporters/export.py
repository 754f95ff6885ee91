"""The one call: from a model, in whatever form, to a training bundle."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgeopt.bundle import Bundle
from edgeopt.errors import UnsupportedModelError
from edgeopt.losses import Loss
from edgeopt.metrics import Metric
from edgeopt.optimizers import Optimizer
from edgeopt.training import ForwardModel, compose
from edgeopt.transforms import Transform

__all__ = ["export"]


def export(
    model: Any,
    example_inputs: Any,
    *,
    loss: Loss,
    optimizer: Optimizer,
    transforms: Sequence[Transform] = (),
    trainable: str | Iterable[str] | None = None,
    metrics: Sequence[Metric] = (),
    dynamic_batch: bool = True,
    dynamic_shapes: Mapping[str, Mapping[int, str]] | None = None,
    output: str | None = None,
    seed: int = 0,
    hessian_vector: bool = False,
) -> Bundle:
    """Export the whole training step of a model.

    The model is left as it was. The bundle holds five ordinary ONNX graphs (`step`, `accumulate`, `apply`, `evaluate`,
    `predict`) and the state they work on; `bundle.save("name.edgeopt")` writes it.

    Args:
        model: A `torch.nn.Module`. In evaluation mode as a whole it is exported for training with `train()`; in
            training mode its parts keep the modes they are in, so a BatchNorm put into `eval()` stays frozen.
        example_inputs: A tensor, a tuple of tensors in the order of `forward`, or a mapping by its parameter names.
        loss: What is minimised, `edgeopt.losses.CrossEntropy()`; it adds its targets to the inputs of a batch.
        optimizer: The update rule, `edgeopt.optimizers.AdamW(lr=…)`; `lr` is a number or a schedule.
        transforms: What happens to gradients before the update, in order: `[ClipByGlobalNorm(1.0)]`.
        trainable: Shell-style patterns of parameter names, one or several (`"classifier.*"`). None trains every
            parameter with `requires_grad`. The rest stays as it is, and is in the bundle all the same.
        metrics: What is reported beside the loss, `[edgeopt.metrics.Accuracy()]`.
        dynamic_batch: Whether axis 0 of every input is the symbolic dimension "batch".
        dynamic_shapes: More symbolic dimensions, by input and axis: `{"tokens": {1: "sequence"}}`.
        output: The model output that loss and metrics read, by name; the first by default.
        seed: Start of the random numbers that dropout draws on the device.
        hessian_vector: Whether to add a sixth graph, `hessian_vector`, which
            `TrainingSession.minimize(method="newton_cg")` needs.

    Raises:
        UnsupportedModelError: The model is of an unknown kind, or its framework cannot export it.
        SignatureError: Inputs, outputs and targets do not fit together.
        ParameterPatternError: A pattern matches no parameter.
        UnsupportedOperatorError: Operators between the loss and a trainable parameter have no gradient rule; all of
            them are listed.
    """
    forward = _forward_model(model, example_inputs, dynamic_batch, dynamic_shapes)
    return compose(
        forward,
        loss=loss,
        optimizer=optimizer,
        transforms=transforms,
        metrics=metrics,
        trainable=trainable,
        output=output,
        seed=seed,
        hessian_vector=hessian_vector,
    )


def _forward_model(
    model: Any,
    example_inputs: Any,
    dynamic_batch: bool,
    dynamic_shapes: Mapping[str, Mapping[int, str]] | None,
) -> ForwardModel:
    # Whoever holds a torch module has imported torch; asking for it here would cost everyone else its import.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        from edgeopt_exporters.pytorch import from_torch

        return from_torch(model, example_inputs, dynamic_batch=dynamic_batch, dynamic_shapes=dynamic_shapes)
    raise UnsupportedModelError(f"Cannot export a {type(model).__name__}; give a torch.nn.Module.")
