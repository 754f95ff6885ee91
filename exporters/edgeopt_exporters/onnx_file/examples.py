"""The sizes of a file's inputs: some have names, some are numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from edgeopt.canonical.dimensions import is_unknown
from edgeopt.errors import SignatureError

__all__ = ["BATCH", "by_name", "input_of", "set_shapes"]

BATCH = "batch"


def input_of(graph: ir.Graph, name: str, argument: str) -> ir.Value:
    """The input of that name, which the user gave in that argument.

    Raises:
        SignatureError: There is none.
    """
    found = next((value for value in graph.inputs if value.name == name), None)
    if found is None:
        raise SignatureError(f"{argument} names {name!r}, but the inputs are {[value.name for value in graph.inputs]}.")
    return found


def set_shapes(
    graph: ir.Graph, example_inputs: Any, *, dynamic_batch: bool, dynamic_shapes: Mapping[str, Mapping[int, str]]
) -> None:
    """Settle the dimensions that a file leaves open.

    Those of `dynamic_shapes` get their names; axis 0 keeps its own, or is called "batch"; the others take the sizes of
    the examples, where there are some.

    Raises:
        SignatureError: An input is unknown, an example does not fit it, or it has no such axis.
    """
    examples = {name: np.shape(example) for name, example in by_name(graph, example_inputs).items()}
    for name in (*examples, *dynamic_shapes):
        input_of(graph, name, "example_inputs" if name in examples else "dynamic_shapes")
    for value in graph.inputs:
        name = value.name or ""
        shape = examples.get(name)
        if value.shape is None and shape is None:
            continue
        dims: list[Any] = [None] * len(shape or ()) if value.shape is None else list(value.shape)
        if shape is not None and not _fits(shape, dims):
            raise SignatureError(f"The example for input {name!r} has shape {shape}, but the file says {value.shape}.")
        for axis, dim in enumerate(dims):
            if is_unknown(dim) and axis == 0 and dynamic_batch:
                dims[axis] = BATCH
            elif shape is not None and not _is_size(dim) and (axis or not dynamic_batch):
                dims[axis] = shape[axis]
        for axis, symbol in dynamic_shapes.get(name, {}).items():
            if not -len(dims) <= axis < len(dims):
                raise SignatureError(f"dynamic_shapes names axis {axis} of {name!r}, which has {len(dims)} dimensions.")
            dims[axis] = symbol
        value.shape = ir.Shape(dims)


def by_name(graph: ir.Graph, example_inputs: Any) -> dict[str, Any]:
    """The examples under the names of their inputs.

    Raises:
        SignatureError: There are more of them than inputs.
    """
    names = [value.name or "" for value in graph.inputs]
    if example_inputs is None:
        return {}
    if isinstance(example_inputs, Mapping):
        return dict(example_inputs)
    given = list(example_inputs) if isinstance(example_inputs, (list, tuple)) else [example_inputs]
    if len(given) > len(names):
        raise SignatureError(f"There are {len(given)} examples for the inputs {names}.")
    return dict(zip(names, given, strict=False))


def _is_size(dim: Any) -> bool:
    return isinstance(dim, int) and dim >= 0


def _fits(shape: Sequence[int], dims: Sequence[Any]) -> bool:
    return len(shape) == len(dims) and all(size == dim for size, dim in zip(shape, dims, strict=True) if _is_size(dim))
