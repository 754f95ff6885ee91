"""Shapes whose dimensions may be symbolic: ints, names, or None where nothing is known.

Two dimensions are the same when both are known and equal: the name `"batch"` equals `"batch"` and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import onnx_ir as ir

__all__ = ["Dim", "Shape", "broadcast", "fixed", "from_ir", "is_static", "same_dim", "to_ir"]

Dim: TypeAlias = "int | str | None"
Shape: TypeAlias = "tuple[int | str | None, ...]"


def from_ir(shape: ir.Shape) -> Shape:
    """The plain tuple of an ONNX shape."""
    return tuple(dim if isinstance(dim, int) else dim.value for dim in shape)


def to_ir(shape: Sequence[Dim]) -> ir.Shape:
    """The ONNX shape of a plain tuple."""
    return ir.Shape(list(shape))


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are known to be equal."""
    return a is not None and a == b


def is_static(shape: Sequence[Dim]) -> bool:
    """Whether every dimension is a number."""
    return all(isinstance(dim, int) for dim in shape)


def fixed(shape: Sequence[Dim]) -> list[int]:
    """The dimensions that are numbers; all of them of a static shape."""
    return [dim for dim in shape if isinstance(dim, int)]


def _broadcast_dim(a: Dim, b: Dim) -> Dim:
    if a == 1 or same_dim(a, b):
        return b
    if b == 1:
        return a
    # A symbol against a number other than 1 must be that number (or 1, which broadcasts to it).
    if isinstance(a, int):
        return a
    return b if isinstance(b, int) else None


def broadcast(*shapes: Shape) -> Shape:
    """The shape that numpy-style broadcasting gives; None for a dimension that cannot be known."""
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes]
    result: list[Dim] = []
    for dims in zip(*padded, strict=True):
        dim = dims[0]
        for other in dims[1:]:
            dim = _broadcast_dim(dim, other)
        result.append(dim)
    return tuple(result)
