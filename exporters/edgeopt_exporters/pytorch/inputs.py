"""Example inputs: by name, with dimensions that stay symbolic."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from edgeopt.errors import SignatureError

__all__ = ["Examples", "bind_examples"]

BATCH = "batch"


@dataclass(frozen=True)
class Examples:
    """Example tensors in the order of the graph's inputs.

    Attributes:
        names: The input names, which are the parameter names of the module's `forward`.
        tensors: One example for each.
        dimensions: For each input, the names of its symbolic dimensions by axis.
    """

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    dimensions: tuple[dict[int, str], ...]


def bind_examples(
    module: torch.nn.Module,
    example_inputs: Any,
    dynamic_batch: bool,
    dynamic_shapes: Mapping[str, Mapping[int, str]] | None,
) -> Examples:
    """Match the user's examples with the parameters of `module.forward`.

    Raises:
        SignatureError: An example is no tensor, fits no parameter, or a name in `dynamic_shapes` is unknown.
    """
    named = _by_name(module, example_inputs)
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            raise SignatureError(
                f"The example for input {name!r} is a {type(value).__name__}; give a torch.Tensor. Settings that are "
                "no tensors belong into the module (functools.partial, or a small wrapper module)."
            )
    unknown = sorted(set(dynamic_shapes or {}) - set(named))
    if unknown:
        raise SignatureError(f"dynamic_shapes names {unknown}, but the inputs are {list(named)}.")
    dimensions = []
    for name, tensor in named.items():
        own: dict[int, str] = {0: BATCH} if dynamic_batch and tensor.ndim else {}
        own.update({axis % tensor.ndim: symbol for axis, symbol in (dynamic_shapes or {}).get(name, {}).items()})
        dimensions.append(own)
    tensors = tuple(_not_one(tensor, own) for tensor, own in zip(named.values(), dimensions, strict=True))
    return Examples(tuple(named), tensors, tuple(dimensions))


def _by_name(module: torch.nn.Module, example_inputs: Any) -> dict[str, Any]:
    signature = inspect.signature(module.forward)
    try:
        if isinstance(example_inputs, Mapping):
            bound = signature.bind(**example_inputs)
        elif isinstance(example_inputs, Sequence):
            bound = signature.bind(*example_inputs)
        else:
            bound = signature.bind(example_inputs)
    except TypeError as error:
        raise SignatureError(
            f"The example inputs do not fit {type(module).__name__}.forward{signature}: {error}."
        ) from error
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named.update({f"{name}_{position}": item for position, item in enumerate(value)})
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    return named


def _not_one(tensor: torch.Tensor, dimensions: Mapping[int, str]) -> torch.Tensor:
    """torch.export takes a size of 1 for a constant, so a symbolic dimension needs an example of 2 at least."""
    for axis in dimensions:
        if tensor.shape[axis] == 1:
            tensor = torch.cat([tensor, tensor], dim=axis)
    return tensor
