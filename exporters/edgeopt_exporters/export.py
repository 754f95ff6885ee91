"""The one call: from a model, in whatever form, to a training bundle."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import onnx
import onnx_ir as ir

from edgeopt.adapters import ADAPTER, Adapter
from edgeopt.bundle import Bundle
from edgeopt.components import described
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.images import Images, with_images
from edgeopt.losses import FromTorch, Loss
from edgeopt.metrics import METRIC, Metric
from edgeopt.optimizers import OptimizerLike
from edgeopt.training import BatchNorm, ForwardModel, FrozenWeights, check_format, compose
from edgeopt.transforms import Transform
from edgeopt_exporters.adapting import adapted, checkable
from edgeopt_exporters.budget import Budget, fit
from edgeopt_exporters.given import (
    INSTEAD,
    as_loss,
    as_optimizer,
    as_transforms,
    refuse_labels,
    refuse_model,
)
from edgeopt_exporters.onnx_file import from_onnx
from edgeopt_exporters.onnx_file.modes import BatchNormMode
from edgeopt_exporters.onnx_file.reading import of_bytes
from edgeopt_exporters.phases import phase, phases_shown
from edgeopt_exporters.saying import say
from edgeopt_exporters.verification import Reference, verify
from edgeopt_exporters.verification.pictures import ImagesReference
from edgeopt_runtime.calls import answered
from edgeopt_runtime.manifest import Decision

__all__ = ["export"]


@answered(
    ConfigurationError, INSTEAD, needed={"model": "...", "loss": '"cross_entropy"', "optimizer": '"adamw:lr=1e-3"'}
)
def export(
    model: Any,
    example_inputs: Any = None,
    *,
    loss: Loss | type[Loss] | str | Any,
    optimizer: OptimizerLike,
    transforms: Transform | str | Iterable[Transform | type[Transform] | str] = (),
    trainable: str | Iterable[str] | None = None,
    adapters: Adapter | str | Iterable[Adapter | type[Adapter] | str] = (),
    metrics: Metric | str | Iterable[Metric | type[Metric] | str] = (),
    dynamic_batch: bool = True,
    dynamic_shapes: Mapping[str, Mapping[int, str]] | Any = None,
    images: Images | None = None,
    output: str | None = None,
    batch_norm: BatchNorm = "auto",
    fixed_inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    hessian_vector: bool = False,
    recompute: str | Iterable[str] = (),
    memory_budget_mb: float | None = None,
    memory_sizes: Mapping[str, int] | None = None,
    freeze_to_fit: bool = False,
    frozen_weights: FrozenWeights = "float32",
    check: bool = True,
    verbose: bool = True,
) -> Bundle:
    """Export the whole training step of a model.

    The model is left as it was. The bundle holds five ordinary ONNX graphs (`step`, `accumulate`, `apply`, `evaluate`,
    `predict`) and the state they work on; `bundle.save("name.edgeopt")` writes it.

    Args:
        model: A `torch.nn.Module`, or an ONNX file (its path, its bytes, an `onnx.ModelProto` or an `onnx_ir.Model`). A
            module in evaluation mode as a whole is exported for training with `train()`; in training mode its parts
            keep the modes they are in, so a BatchNorm put into `eval()` stays frozen.
        example_inputs: A tensor, a tuple of arguments in the order of `forward`, or a mapping by its parameter names.
            The tensors of a list or tuple among them are the inputs `name_0`, `name_1`, those of a dict `name.key`, of
            a NamedTuple `name.field`; None, numbers and strings are part of the graph. An argument that is the only
            one and a list or dict itself is given in a tuple. An ONNX file needs no examples; where its dimensions
            are symbolic, they give sizes to those that shall be fixed.
        loss: What is minimised, `edgeopt.losses.CrossEntropy()`, or its name, `"cross_entropy:label_smoothing=0.1"`; or
            a loss of `torch.nn` that has an equal here. It adds its targets to the inputs of a batch. One of your own
            is a class derived from `edgeopt.losses.Loss`, or a function of arrays `def loss(xp, prediction, target)`,
            see `edgeopt.losses.from_function`; a module or function of PyTorch, `edgeopt.losses.from_torch(...)`; an
            ONNX model, `edgeopt.losses.from_onnx("loss.onnx")`; or an output of the model, which gets the labels
            itself, `edgeopt.losses.FromOutput("loss")`. Losses are added and multiplied by numbers.
        optimizer: The update rule, `edgeopt.optimizers.AdamW(lr=…)`, or its name, `"adamw:lr=1e-3"`; `lr` is a number
            or a schedule. For other settings or another rule for some parameters:
            `[Group("*.bias", weight_decay=0.0), AdamW(lr=…)]`. An optimizer of `torch.optim` that holds parameters of
            the model is taken over with its groups; where it holds only some of them, only those train.
        transforms: What happens to gradients before the update, in order: `[ClipByGlobalNorm(1.0)]`.
        trainable: Shell-style patterns of parameter names, one or several (`"classifier.*"`). None trains every
            parameter with `requires_grad`. The rest stays as it is, and is in the bundle all the same.
        adapters: What trains in place of the model itself: `edgeopt.adapters.LoRA(rank=8)`, or its name,
            `"lora:rank=8,alpha=16"`; one or several, each for layers of its own. Of the model's own parameters those in
            `trainable` train besides, a new head for instance, and the rest stays; None is none of them then.
        metrics: What is reported beside the loss, `[edgeopt.metrics.Accuracy()]` or `["accuracy"]`.
        dynamic_batch: Whether axis 0 of the first input, and of the others that have the same size there, is the
            symbolic dimension "batch", where the model computes the same at another size. An ONNX file's own symbolic
            dimensions stay where it runs at a second size; one that has none gets this one where that gives the same.
        dynamic_shapes: More symbolic dimensions, by input and axis: `{"tokens": {1: "sequence"}}`; or in one of the
            forms of `torch.export.export`.
        images: Where an input is pictures that come as bytes: `edgeopt.Images(mean, std, layout="NHWC")`. Batches hold
            uint8 then, and the graphs normalise them. The examples stay what the model itself takes.
        output: The model output that loss and metrics read, by name; the first by default. In an ONNX file, any tensor
            will do; where the first output is made by Softmax or Sigmoid and the loss reads logits, those in front of
            it are the default, and predictions stay what they were. Of a module that returns more in training than in
            evaluation (auxiliary heads), the training output that evaluation returns.
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
        memory_budget_mb: What a process may grow by when it trains, in MiB, as `Bundle.estimate` foretells it. What
            fits is chosen, the quickest first: the step as it is, `recompute="auto"`, microbatches
            (`session.accumulate`). `bundle.decisions` says which.
        memory_sizes: For the budget: sizes of the symbolic dimensions in one step, `{"batch": 32}`. Those of a module's
            examples by default; for an ONNX file with symbolic dimensions they are needed.
        freeze_to_fit: For the budget: whether fewer parameters may train, the last ones.
        frozen_weights: How large weights that do not train are stored: `"float32"`; `"float16"`, `"int8"` (a scale for
            each channel), `"int4"` or `"nf4"` (blocks of 64), which the graphs decode where they use them. A module is
            then compared with itself with the decoded weights in it.
        check: Whether to run the finished graphs on the examples and compare them with the model.
        verbose: Whether to say on stderr, in a line each, what was settled without being asked for; it is
            `bundle.decisions` in any case. On a terminal a line says what an export is doing that takes longer than two
            seconds.

    Raises:
        ConfigurationError: The loss, optimizer, a transform or a metric is none, or has no equal here.
        UnsupportedModelError: The model is of an unknown kind, its framework cannot export it, or no gradient of the
            loss reaches a trainable parameter.
        SignatureError: Inputs, outputs and targets do not fit together.
        ParameterPatternError: A pattern matches no parameter.
        UnsupportedOperatorError: Operators between the loss and a trainable parameter have no gradient rule; all of
            them are listed.
        MemoryBudgetError: Nothing fits into `memory_budget_mb`; it says what the leanest choice needs.
    """
    if batch_norm not in get_args(BatchNorm):
        raise ConfigurationError(f"batch_norm must be one of {', '.join(get_args(BatchNorm))}, got {batch_norm!r}.")
    check_format(frozen_weights)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigurationError(f"seed must be a whole number, at least 0; got {described(seed)}.")
    if not isinstance(recompute, Iterable):  # which text is, too
        raise ConfigurationError(f"recompute must be 'auto' or patterns of module names; got {described(recompute)}.")
    if isinstance(model, (bytes, bytearray, memoryview)):
        model = of_bytes(bytes(model))
    # Whoever holds a torch module has imported torch; asking for it here would cost everyone else its import.
    torch = sys.modules.get("torch")
    is_module = torch is not None and isinstance(model, torch.nn.Module)
    if not is_module and not _is_onnx(model):
        raise refuse_model(model)
    given = as_optimizer(optimizer, trainable, model if is_module else None)
    settings: dict[str, Any] = {
        "loss": as_loss(loss),
        "optimizer": given.groups,
        "transforms": as_transforms(transforms),
        "metrics": METRIC.several(metrics),
        "trainable": given.trainable,
        "output": output,
        "seed": seed,
        "hessian_vector": hessian_vector,
        "recompute": recompute,
        "batch_norm": batch_norm,
        "frozen_weights": frozen_weights,
    }
    request = _Request(
        model=model,
        example_inputs=example_inputs,
        shapes={"dynamic_batch": dynamic_batch, "dynamic_shapes": dynamic_shapes},
        fixed_inputs=fixed_inputs,
        settings=settings,
        adapters=ADAPTER.several(adapters),
        images=_checked_images(images),
        budget=None if memory_budget_mb is None else Budget(memory_budget_mb, memory_sizes, freeze_to_fit),
        check=check,
    )
    if is_module and any(isinstance(each, FromTorch) for _, each in settings["loss"].parts()):
        request = _with_losses_inside(request)
    with phases_shown(verbose=verbose):
        bundle = _export_module(request) if is_module else _export_file(request)
    bundle = _with_decisions(bundle, given.decisions)
    say(bundle.decisions, verbose=verbose)
    return bundle


@dataclass(frozen=True)
class _Request:
    """What `export` was asked for, checked and in the forms that the rest of the way wants."""

    model: Any
    example_inputs: Any
    shapes: Mapping[str, Any]
    fixed_inputs: Any
    settings: Mapping[str, Any]
    adapters: tuple[Adapter, ...]
    images: Images | None
    budget: Budget | None
    check: bool


def _export_file(asked: _Request) -> Bundle:
    phase("reading the file" + (" and running it" if asked.check else ""))
    batch_norm = asked.settings["batch_norm"]
    mode: BatchNormMode = "file" if batch_norm == "auto" else batch_norm
    forward = from_onnx(
        asked.model,
        asked.example_inputs,
        **asked.shapes,
        batch_norm=mode,
        fixed_inputs=asked.fixed_inputs,
        output=asked.settings["output"],
        loss=asked.settings["loss"],
        check=asked.check,
    )
    if asked.images is not None:
        forward = with_images(forward, asked.images)
    return _fitted(*adapted(forward, asked.adapters, asked.settings), asked.budget, {})[0]


def _fitted(
    forward: ForwardModel, settings: Mapping[str, Any], budget: Budget | None, sizes: Mapping[str, int]
) -> tuple[Bundle, Mapping[str, Any]]:
    """The training step, and the settings that it has been composed with: a budget may change them."""
    if budget is None:
        return _composed(forward, settings), settings
    return fit(_composed, forward, settings, budget, sizes)


def _composed(forward: ForwardModel, settings: Mapping[str, Any]) -> Bundle:
    phase("writing the training step")
    return Bundle.of(compose(forward, **settings))


def _export_module(asked: _Request) -> Bundle:
    forward, reference = _from_torch(asked)
    if asked.images is not None:
        reference = ImagesReference(reference, asked.images, asked.images.find(forward))
        forward = with_images(forward, asked.images)
    plain = forward
    forward, settings = adapted(plain, asked.adapters, asked.settings)
    bundle, chosen = _fitted(forward, settings, asked.budget, reference.sizes)
    if not asked.check:
        return bundle
    phase("comparing it with the module")
    compared = checkable(bundle, forward, chosen, plain, asked.adapters, asked.settings, reference)
    if compared is None:
        text = "not compared with the model: it has no weight of its own in which an adapter could be merged"
        return _with_decisions(bundle, [Decision("unchecked", "model", text, warning=True)])
    verdict = verify(compared[0], compared[1], chosen, compared[2])
    if refused := {name: why for name, why in verdict.unproven.items() if name in reference.asked}:
        listing = "".join(f"\n  - {name!r}: {why}" for name, why in refused.items())
        raise SignatureError(
            f"These dimensions cannot be symbolic:{listing}\nLeave them out of dynamic_shapes, so that they keep the "
            "sizes of the examples; or let the model compute from the sizes of its inputs."
        )
    if verdict.unproven:
        fixed = _export_module(replace(asked, shapes={**asked.shapes, "dynamic_batch": False}))
        decisions = [Decision("fixed", name, f"{name} is fixed: {why}") for name, why in verdict.unproven.items()]
        return _with_decisions(fixed, decisions)
    return _with_decisions(bundle, verdict.decisions)


def _with_decisions(bundle: Bundle, decisions: Iterable[Decision]) -> Bundle:
    return replace(bundle, manifest=replace(bundle.manifest, decisions=(*bundle.manifest.decisions, *decisions)))


def _from_torch(asked: _Request) -> tuple[ForwardModel, Reference]:
    from edgeopt_exporters.pytorch import from_torch

    output = asked.settings["output"]
    if asked.example_inputs is None:
        raise SignatureError("A torch.nn.Module needs example_inputs.")
    refuse_labels(asked.model, asked.example_inputs, output, asked.settings["loss"])
    if asked.fixed_inputs is not None:
        raise SignatureError("fixed_inputs is for ONNX files; a module's examples may hold numbers that never change.")
    if asked.settings["batch_norm"] == "file":
        raise SignatureError('batch_norm="file" is for ONNX files; a module\'s parts say themselves how they train.')
    return from_torch(asked.model, asked.example_inputs, **asked.shapes, output=output)


def _with_losses_inside(asked: _Request) -> _Request:
    """The same with losses of PyTorch as a part of the module, which returns them."""
    from edgeopt_exporters.pytorch.with_losses import with_losses

    model, examples, loss = with_losses(
        asked.model, asked.example_inputs, asked.settings["loss"], asked.settings["output"]
    )
    return replace(asked, model=model, example_inputs=examples, settings={**asked.settings, "loss": loss})


def _checked_images(images: Any) -> Images | None:
    if images is not None and not isinstance(images, Images):
        raise ConfigurationError(f"images must be edgeopt.Images(mean, std, ...), got {described(images)}.")
    return images


def _is_onnx(model: Any) -> bool:
    return isinstance(model, (str, os.PathLike, onnx.ModelProto, ir.Model))
