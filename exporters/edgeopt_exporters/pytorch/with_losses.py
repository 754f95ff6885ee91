"""Losses of PyTorch as a part of the module that they train: what computes both is one module, with one graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from edgeopt.errors import SignatureError
from edgeopt.losses import FromOutput, FromTorch, Loss, WeightedSum
from edgeopt_exporters.pytorch.calling import Call, bind_call, unwrapped
from edgeopt_exporters.pytorch.module import Returned

__all__ = ["with_losses"]

_NAME = "loss"


def with_losses(
    model: torch.nn.Module, example_inputs: Any, loss: Loss, output: str | None
) -> tuple[torch.nn.Module, dict[str, torch.Tensor], Loss]:
    """A module that returns what the model returns and its losses, examples for it, and what is minimised then.

    It shares parameters, buffers and parts with the model, under the same names.

    Args:
        model: The module.
        example_inputs: As `edgeopt.export` takes them.
        loss: With at least one `FromTorch` among it.
        output: The output that losses read which name none; the first by default.

    Raises:
        SignatureError: The examples do not fit, or a target has the name of an input.
    """
    model = unwrapped(model)
    call, tensors = bind_call(model, example_inputs)
    examples = dict(zip(call.names, tensors, strict=True))
    own: list[_Own] = []
    terms: list[tuple[float, Loss]] = []
    for factor, each in loss.parts():
        if isinstance(each, FromTorch):
            _add_targets(examples, each, call)
            name = _NAME if not own else f"{_NAME}_{len(own) + 1}"
            own.append(_Own(name, each))
            each = FromOutput(
                name,
                counted=each.counted,
                ignored=each.ignored,
                reduction=each.reduction,
                sample_weight=each.sample_weight,
            )
        terms.append((factor, each))
    # What is said about the module, in messages and the manifest, is said about the model.
    kind = type(type(model).__name__, (_WithLosses,), {"__qualname__": type(model).__qualname__})
    minimised = terms[0][1] if terms[0][0] == 1.0 and len(terms) == 1 else WeightedSum(tuple(terms))
    return kind(model, call, own, output), examples, minimised


class _Own:
    """A loss, the output that it becomes, and the name that its module has as a part of the model."""

    def __init__(self, name: str, loss: FromTorch) -> None:
        self.name, self.loss = name, loss

    def __call__(
        self, function: Callable[..., Any], outputs: Mapping[str, torch.Tensor], tensors: Mapping[str, Any], first: str
    ) -> torch.Tensor:
        arguments = [outputs[name or first] for name in self.loss.outputs()]
        result = function(*arguments, *(tensors[name] for name in self.loss.examples))
        if not isinstance(result, torch.Tensor):
            raise SignatureError(f"The loss must return a tensor, and returns a {type(result).__name__}.")
        return result


class _WithLosses(torch.nn.Module):
    def __init__(self, model: torch.nn.Module, call: Call, losses: Sequence[_Own], output: str | None) -> None:
        super().__init__()
        # The very dicts of the model, in which torch.export puts stand-ins while it traces.
        self._parameters, self._buffers = model._parameters, model._buffers
        self._non_persistent_buffers_set = model._non_persistent_buffers_set
        taken = {*model._modules, *model._parameters, *model._buffers}
        parts: dict[str, torch.nn.Module | None] = dict(model._modules)
        functions: list[tuple[_Own, Callable[..., Any]]] = []
        for own in losses:
            function = own.loss.function
            if isinstance(function, torch.nn.Module):
                name = own.name if own.name not in taken else f"{own.name}_"
                parts[name] = function
            functions.append((own, function))
        self._modules = parts
        self.training = model.training

        def forward(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            before, model.training = model.training, self.training
            try:
                returned = Returned.of(call(model, [tensors[name] for name in call.names]))
            finally:
                model.training = before
            outputs = dict(zip(returned.names, returned.tensors, strict=True))
            if clash := [own.name for own in losses if own.name in outputs]:
                raise SignatureError(f"The model returns {clash[0]!r} already; give it another name there.")
            first = output or returned.names[0]
            # An auxiliary output may be there in training only, and its loss with it.
            found = {
                own.name: own(function, outputs, tensors, first)
                for own, function in functions
                if all((name or first) in outputs for name in own.loss.outputs())
            }
            if not found:
                missing = [name for own in losses for name in own.loss.outputs() if name and name not in outputs]
                raise SignatureError(f"The loss reads the output {missing[0]!r}; the model returns {list(outputs)}.")
            return {**outputs, **found}

        # Outside what torch.nn.Module looks into, so that the model is no part under a second name.
        object.__setattr__(self, "_compute", forward)

    def forward(self, **tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        """The model's outputs and the losses."""
        result: dict[str, torch.Tensor] = self._compute(tensors)  # type: ignore[operator]  # a function, no module
        return result


def _add_targets(examples: dict[str, torch.Tensor], loss: FromTorch, call: Call) -> None:
    for name, example in loss.examples.items():
        if name in call.names:
            raise SignatureError(f"The target {name!r} has the name of an input of the model; give it another one.")
        # A target of two losses is one input.
        examples.setdefault(name, torch.as_tensor(example).detach().clone())
