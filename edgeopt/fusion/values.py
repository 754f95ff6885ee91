"""What a value of a function's body is to a chain: a vector, a number, the same elements in another shape."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

__all__ = [
    "Piece",
    "constant",
    "is_number",
    "is_vector",
    "same_elements",
    "shape_of",
    "size_of",
    "splat",
    "split_sizes",
]

_VIEWS = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
_KINDS = (ir.DataType.FLOAT, ir.DataType.BOOL)


class Piece(NamedTuple):
    """So many elements of a value, from an offset on."""

    value: ir.Value
    offset: int
    size: int


def shape_of(value: ir.Value) -> tuple[int, ...] | None:
    """The shape, if every length is known."""
    if value.shape is None or not all(isinstance(length, int) for length in value.shape):
        return None
    return tuple(int(length) for length in value.shape if isinstance(length, int))


def size_of(value: ir.Value) -> int:
    """The number of elements, -1 where it is not known."""
    shape = shape_of(value)
    return -1 if shape is None else math.prod(shape)


def is_vector(value: ir.Value | None) -> bool:
    """Whether it holds several numbers or truth values that a chain computes with."""
    return value is not None and value.dtype in _KINDS and size_of(value) > 1


def is_number(value: ir.Value | None) -> bool:
    """Whether it holds one number or truth value that a chain computes with."""
    return value is not None and value.dtype in _KINDS and size_of(value) == 1


def constant(value: ir.Value | None) -> np.ndarray | None:
    """What a Constant node holds."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Constant" or "value" not in node.attributes:
        return None
    return node.attributes["value"].as_tensor().numpy()


def splat(value: ir.Value) -> float | ir.Value | None:
    """The number that a tensor holds everywhere: one that is known, or a value; None if that is not seen."""
    node = value.producer()
    known = constant(value)
    if known is not None:
        alike = known.size > 0 and known.tobytes() == np.full_like(known, known.flat[0]).tobytes()
        return float(known.flat[0]) if alike else None
    if node is not None and node.op_type == "ConstantOfShape":
        fill = node.attributes.get("value")
        return 0.0 if fill is None else float(fill.as_tensor().numpy().flat[0])
    if node is not None and node.op_type == "Expand" and is_number(node.inputs[0]):
        return node.inputs[0] if constant(node.inputs[0]) is None else splat(node.inputs[0])  # type: ignore[arg-type]  # is_number saw one
    return value if is_number(value) else None


def same_elements(node: ir.Node) -> bool:
    """Whether the output holds the elements of the first input in their order."""
    return not node.domain and node.op_type in _VIEWS and is_vector(node.outputs[0]) and is_vector(node.inputs[0])


def split_sizes(node: ir.Node) -> list[int] | None:
    """The lengths of the parts of a vector that is split; None for another node."""
    if node.domain or node.op_type != "Split" or not is_vector(node.inputs[0]):
        return None
    source = shape_of(node.inputs[0])  # type: ignore[arg-type]  # is_vector saw one
    sizes = [size_of(part) for part in node.outputs]
    fits = source is not None and len(source) == 1 and min(sizes) > 0 and sum(sizes) == source[0]
    return sizes if fits else None
