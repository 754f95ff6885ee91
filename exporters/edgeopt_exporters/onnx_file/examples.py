"""The sizes of a file's inputs: some get names, some become numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from edgeopt.errors import SignatureError

__all__ = ["fix_shapes", "input_of", "name_dimensions"]


def input_of(graph: ir.Graph, name: str, argument: str) -> ir.Value:
    """The input of that name, which the user gave in that argument.

    Raises:
        SignatureError: There is none.
    """
    found = next((value for value in graph.inputs if value.name == name), None)
    if found is None:
        raise SignatureError(f"{argument} names {name!r}, but the inputs are {[value.name for value in graph.inputs]}.")
    return found


def name_dimensions(graph: ir.Graph, symbols: Mapping[str, Mapping[int, str]]) -> None:
    """Make dimensions symbolic, `{"tokens": {1: "sequence"}}`.

    Raises:
        SignatureError: An input is unknown, or has no such axis.
    """
    for name, own in symbols.items():
        value = input_of(graph, name, "dynamic_shapes")
        dims = [] if value.shape is None else list(value.shape)
        for axis, symbol in own.items():
            if not -len(dims) <= axis < len(dims):
                raise SignatureError(f"dynamic_shapes names axis {axis} of {name!r}, which has {len(dims)} dimensions.")
            dims[axis] = ir.SymbolicDim(symbol)
        value.shape = ir.Shape(dims)


def fix_shapes(graph: ir.Graph, example_inputs: Any) -> None:
    """Give the inputs the shapes of the examples, if there are any.

    Raises:
        SignatureError: The examples do not fit the inputs.
    """
    if example_inputs is None:
        return
    names = [value.name or "" for value in graph.inputs]
    if isinstance(example_inputs, Mapping):
        given = dict(example_inputs)
    elif isinstance(example_inputs, Sequence):
        given = dict(zip(names, example_inputs, strict=False))
    else:
        given = {names[0]: example_inputs}
    for name, example in given.items():
        value, shape = input_of(graph, name, "example_inputs"), np.shape(example)
        own = None if value.shape is None else list(value.shape)
        if own is not None and not _fits(shape, own):
            raise SignatureError(f"The example for input {name!r} has shape {shape}, but the file says {value.shape}.")
        value.shape = ir.Shape(shape)


def _fits(shape: Sequence[int], own: Sequence[Any]) -> bool:
    return len(shape) == len(own) and all(
        size == dim for size, dim in zip(shape, own, strict=True) if isinstance(dim, int)
    )
