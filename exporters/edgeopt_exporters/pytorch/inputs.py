"""Example inputs: by name, with dimensions that stay symbolic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from edgeopt.errors import SignatureError
from edgeopt_exporters.given.dimensions import BATCH, named_dimensions
from edgeopt_exporters.pytorch.calling import Call, bind_call
from edgeopt_exporters.pytorch.refusals import refuse_inputs
from edgeopt_runtime.manifest import Decision

__all__ = ["Examples", "bind_examples"]


@dataclass(frozen=True)
class Examples:
    """Example tensors in the order of the graph's inputs.

    Attributes:
        call: How the module is called with them.
        tensors: One example for each input.
        dimensions: For each input, the names of its symbolic dimensions by axis.
        asked: The input and axis of each dimension that was asked for; the others are axis 0 by default.
        decisions: What was settled about inputs.
    """

    call: Call
    tensors: tuple[torch.Tensor, ...]
    dimensions: tuple[Mapping[int, str], ...]
    asked: frozenset[tuple[str, int]] = frozenset()
    decisions: tuple[Decision, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return self.call.names


def bind_examples(
    module: torch.nn.Module,
    example_inputs: Any,
    dynamic_batch: bool,
    dynamic_shapes: Any,
) -> Examples:
    """Match the user's examples with the parameters of `module.forward`.

    The batch is axis 0 of the first input that has axes; the inputs whose axis 0 has the same size share it.

    Raises:
        SignatureError: An example is no tensor, fits no parameter, or `dynamic_shapes` does not fit the examples.
        UnsupportedModelError: An example is of a kind that no graph computes with.
    """
    call, tensors = bind_call(module, example_inputs)
    refuse_inputs(call.names, tensors)
    tensors = _beside(module, tensors)
    shapes = {name: tuple(tensor.shape) for name, tensor in zip(call.names, tensors, strict=True)}
    named = named_dimensions(dynamic_shapes, shapes, dynamic_batch=dynamic_batch)
    asked = tuple(named.get(name, {}) for name in call.names)
    dimensions, fixed = _with_batch(call.names, tensors, asked) if dynamic_batch else (asked, ())
    _refuse_sizes(call.names, tensors, dimensions)
    constants = (
        Decision("fixed", name, f"`{name}` is fixed at {value!r}: it is no tensor, so it is part of the graph.")
        for name, value in call.constants.items()
        if value is not None
    )
    return Examples(
        call,
        tuple(_not_one(tensor, own) for tensor, own in zip(tensors, dimensions, strict=True)),
        dimensions,
        frozenset((name, axis) for name, own in zip(call.names, asked, strict=True) for axis in own),
        (*constants, *fixed),
    )


def _beside(module: torch.nn.Module, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The examples on the device of the module's parameters, where that is one."""
    devices = {parameter.device for parameter in module.parameters()}
    return tuple(tensor.to(device) for tensor in tensors for device in devices) if len(devices) == 1 else tensors


def _with_batch(
    names: tuple[str, ...], tensors: tuple[torch.Tensor, ...], asked: tuple[dict[int, str], ...]
) -> tuple[tuple[dict[int, str], ...], tuple[Decision, ...]]:
    """The dimensions with the batch among them, and what was decided about axis 0 of the inputs that do not have it."""
    first = next((place for place, tensor in enumerate(tensors) if tensor.ndim), None)
    if first is None:
        return asked, ()
    size, symbol = tensors[first].shape[0], asked[first].get(0, BATCH)
    dimensions, decisions = [], []
    for name, tensor, own in zip(names, tensors, asked, strict=True):
        if tensor.ndim and 0 not in own:
            if tensor.shape[0] == size:
                own = {0: symbol, **own}
            else:
                text = (
                    f"Axis 0 of `{name}` stays {tensor.shape[0]}: the batch, which is axis 0 of `{names[first]}`, is "
                    f"{size} in the examples. `dynamic_shapes` can make it a dimension of its own."
                )
                decisions.append(Decision("fixed", name, text))
        dimensions.append(own)
    return tuple(dimensions), tuple(decisions)


def _refuse_sizes(
    names: tuple[str, ...], tensors: tuple[torch.Tensor, ...], dimensions: tuple[dict[int, str], ...]
) -> None:
    """A name has one size, and there is something along it."""
    seen: dict[str, tuple[str, int, int]] = {}
    for name, tensor, own in zip(names, tensors, dimensions, strict=True):
        for axis, symbol in own.items():
            size = tensor.shape[axis]
            if size == 0:
                raise SignatureError(
                    f"The example for input {name!r} has the shape {tuple(tensor.shape)}: its axis {axis}, "
                    f"the dimension {symbol!r}, is empty. Give an example with something in it."
                )
            other, place, before = seen.setdefault(symbol, (name, axis, size))
            if before != size:
                raise SignatureError(
                    f"The dimension {symbol!r} is axis {place} of {other!r} and axis {axis} of {name!r}, but the "
                    f"examples have the sizes {before} and {size} there. Give them two names, or examples that agree."
                )


def _not_one(tensor: torch.Tensor, dimensions: Mapping[int, str]) -> torch.Tensor:
    """torch.export takes a size of 1 for a constant, so a symbolic dimension needs an example of 2 at least."""
    for axis in dimensions:
        if tensor.shape[axis] == 1:
            tensor = torch.cat([tensor, tensor], dim=axis)
    return tensor
