"""The one call: from a model, in whatever form, to a training bundle."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import onnx
import onnx_ir as ir

from edgeopt.bundle import Bundle
from edgeopt.errors import ConfigurationError, SignatureError, UnsupportedModelError
from edgeopt.losses import Loss
from edgeopt.metrics import Metric
from edgeopt.optimizers import OptimizerLike
from edgeopt.training import BatchNorm, ForwardModel, compose
from edgeopt.transforms import Transform
from edgeopt_exporters.onnx_file import from_onnx
from edgeopt_exporters.onnx_file.modes import BatchNormMode
from edgeopt_exporters.saying import say
from edgeopt_exporters.verification import Reference, verify
from edgeopt_runtime.manifest import Decision

__all__ = ["export"]


def export(
    model: Any,
    example_inputs: Any = None,
    *,
    loss: Loss,
    optimizer: OptimizerLike,
    transforms: Sequence[Transform] = (),
    trainable: str | Iterable[str] | None = None,
    metrics: Sequence[Metric] = (),
    dynamic_batch: bool = True,
    dynamic_shapes: Mapping[str, Mapping[int, str]] | None = None,
    output: str | None = None,
    batch_norm: BatchNorm = "auto",
    fixed_inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    hessian_vector: bool = False,
    recompute: str | Iterable[str] = (),
    check: bool = True,
    verbose: bool = True,
) -> Bundle:
    """Export the whole training step of a model.

    The model is left as it was. The bundle holds five ordinary ONNX graphs (`step`, `accumulate`, `apply`, `evaluate`,
    `predict`) and the state they work on; `bundle.save("name.edgeopt")` writes it.

    Args:
        model: A `torch.nn.Module`, or an ONNX file (its path, an `onnx.ModelProto` or an `onnx_ir.Model`). A module in
            evaluation mode as a whole is exported for training with `train()`; in training mode its parts keep the
            modes they are in, so a BatchNorm put into `eval()` stays frozen.
        example_inputs: A tensor, a tuple of arguments in the order of `forward`, or a mapping by its parameter names.
            The tensors of a list or tuple among them are the inputs `name_0`, `name_1`, those of a dict `name.key`, of
            a NamedTuple `name.field`; None, numbers and strings are part of the graph. An argument that is the only
            one and a list or dict itself is given in a tuple. An ONNX file needs no examples; where its dimensions
            are symbolic, they give sizes to those that shall be fixed.
        loss: What is minimised, `edgeopt.losses.CrossEntropy()`; it adds its targets to the inputs of a batch.
        optimizer: The update rule, `edgeopt.optimizers.AdamW(lr=…)`; `lr` is a number or a schedule. For other settings
            or another rule for some parameters: `[Group("*.bias", weight_decay=0.0), AdamW(lr=…)]`.
        transforms: What happens to gradients before the update, in order: `[ClipByGlobalNorm(1.0)]`.
        trainable: Shell-style patterns of parameter names, one or several (`"classifier.*"`). None trains every
            parameter with `requires_grad`. The rest stays as it is, and is in the bundle all the same.
        metrics: What is reported beside the loss, `[edgeopt.metrics.Accuracy()]`.
        dynamic_batch: Whether axis 0 of the first input, and of the others that have the same size there, is the
            symbolic dimension "batch", where the model computes the same at another size. An ONNX file's own symbolic
            dimensions stay where it runs at a second size; one that has none gets this one where that gives the same.
        dynamic_shapes: More symbolic dimensions, by input and axis: `{"tokens": {1: "sequence"}}`.
        output: The model output that loss and metrics read, by name; the first by default. In an ONNX file, any tensor
            will do: the logits in front of a Softmax. Of a module that returns more in training than in evaluation
            (auxiliary heads), the training output that evaluation returns.
        batch_norm: Which statistics BatchNorm, and whatever else has running ones, uses in training. `"auto"`: those
            that the module or file says, except that a layer none of whose parameters train uses its running
            statistics, which stay as they are. `"train"`: the batch's, also in layers that do not train; a module's
            parts that are in evaluation mode stay in it. `"frozen"`: the running ones, everywhere. `"file"`, for ONNX
            files: in each node those that the file says, which are the running ones unless it was written for
            training.
        fixed_inputs: For ONNX files. Values of inputs that never change (`{"sr": 16000}`), and that decide branches.
        seed: Start of the random numbers that dropout draws on the device.
        hessian_vector: Whether to add a sixth graph, `hessian_vector`, which
            `TrainingSession.minimize(method="newton_cg")` needs.
        recompute: Less memory for more time: `"auto"` keeps a few activations of the forward pass and computes the
            others again in the backward pass, with the same results to the last bit. Patterns of module names
            (`"encoder.layer.*"`) say whose activations are dropped: of each module that matches, what it reads is kept.
        check: Whether to run the finished graphs on the examples and compare them with the model.
        verbose: Whether to say on stderr, in a line each, what was settled without being asked for; it is
            `bundle.decisions` in any case.

    Raises:
        UnsupportedModelError: The model is of an unknown kind, its framework cannot export it, or no gradient of the
            loss reaches a trainable parameter.
        SignatureError: Inputs, outputs and targets do not fit together.
        ParameterPatternError: A pattern matches no parameter.
        UnsupportedOperatorError: Operators between the loss and a trainable parameter have no gradient rule; all of
            them are listed.
    """
    if batch_norm not in get_args(BatchNorm):
        raise ConfigurationError(f"batch_norm must be one of {', '.join(get_args(BatchNorm))}, got {batch_norm!r}.")
    shapes: dict[str, Any] = {"dynamic_batch": dynamic_batch, "dynamic_shapes": dynamic_shapes}
    settings: dict[str, Any] = {
        "loss": loss,
        "optimizer": optimizer,
        "transforms": transforms,
        "metrics": metrics,
        "trainable": trainable,
        "output": output,
        "seed": seed,
        "hessian_vector": hessian_vector,
        "recompute": recompute,
        "batch_norm": batch_norm,
    }
    # Whoever holds a torch module has imported torch; asking for it here would cost everyone else its import.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        bundle = _export_module(model, example_inputs, shapes, fixed_inputs, settings, check=check)
    elif _is_onnx(model):
        mode: BatchNormMode = "file" if batch_norm == "auto" else batch_norm
        forward = from_onnx(
            model,
            example_inputs,
            **shapes,
            batch_norm=mode,
            fixed_inputs=fixed_inputs,
            output=output,
            check=check,
        )
        bundle = Bundle.of(compose(forward, **settings))
    else:
        raise UnsupportedModelError(f"Cannot export a {type(model).__name__}; give a torch.nn.Module or an ONNX file.")
    say(bundle.decisions, verbose=verbose)
    return bundle


def _export_module(
    module: Any,
    example_inputs: Any,
    shapes: Mapping[str, Any],
    fixed_inputs: Any,
    settings: Mapping[str, Any],
    *,
    check: bool,
) -> Bundle:
    forward, reference = _from_torch(module, example_inputs, shapes, fixed_inputs, settings)
    bundle = Bundle.of(compose(forward, **settings))
    if not check:
        return bundle
    verdict = verify(bundle, forward, settings, reference)
    asked = {name for own in (shapes["dynamic_shapes"] or {}).values() for name in own.values()}
    if refused := {name: why for name, why in verdict.unproven.items() if name in asked}:
        listing = "".join(f"\n  - {name!r}: {why}" for name, why in refused.items())
        raise SignatureError(
            f"These dimensions cannot be symbolic:{listing}\nLeave them out of dynamic_shapes, so that they keep the "
            "sizes of the examples; or let the model compute from the sizes of its inputs."
        )
    if verdict.unproven:
        fixed = _export_module(
            module, example_inputs, {**shapes, "dynamic_batch": False}, fixed_inputs, settings, check=check
        )
        decisions = [Decision("fixed", name, f"{name} is fixed: {why}") for name, why in verdict.unproven.items()]
        return _with_decisions(fixed, decisions)
    return _with_decisions(bundle, verdict.decisions)


def _with_decisions(bundle: Bundle, decisions: Iterable[Decision]) -> Bundle:
    return replace(bundle, manifest=replace(bundle.manifest, decisions=(*bundle.manifest.decisions, *decisions)))


def _from_torch(
    module: Any,
    example_inputs: Any,
    shapes: Mapping[str, Any],
    fixed_inputs: Any,
    settings: Mapping[str, Any],
) -> tuple[ForwardModel, Reference]:
    from edgeopt_exporters.pytorch import from_torch

    if example_inputs is None:
        raise SignatureError("A torch.nn.Module needs example_inputs.")
    of_files = {"fixed_inputs": fixed_inputs is not None, 'batch_norm="file"': settings["batch_norm"] == "file"}
    given = [name for name, is_given in of_files.items() if is_given]
    if given:
        raise SignatureError(
            f"{' and '.join(given)} is for ONNX files; a module's parts say themselves how they train."
        )
    return from_torch(module, example_inputs, **shapes, output=settings["output"])


def _is_onnx(model: Any) -> bool:
    return isinstance(model, (str, os.PathLike, onnx.ModelProto, ir.Model))
