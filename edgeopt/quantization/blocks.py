"""Arrays cut into blocks, each with a scale of its own."""

from __future__ import annotations

import math
from typing import Any

from edgeopt.array_types import Array, Namespace, leading

__all__ = ["block_count", "like", "normalised", "scaled", "to_blocks", "whole"]


#: What is divided by at least; its inverse is finite in float32.
SMALLEST = 1e-38


def block_count(shape: tuple[int, ...], block: int) -> int:
    """How many blocks an array makes; the last one may be shorter."""
    return max(1, math.ceil(math.prod(shape) / block))


def to_blocks(xp: Namespace, array: Array, block: int) -> Array:
    """The array as rows of `block` elements, in C order; zeros fill the last row."""
    size = math.prod(int(dim) for dim in array.shape)
    count = block_count((size,), block)
    flat = xp.reshape(array, (size,))
    if count * block > size:
        padding = xp.broadcast_to(xp.zeros_like(xp.sum(flat)), (count * block - size,))
        flat = xp.concat([flat, padding])
    return xp.reshape(flat, (count, block))


def whole(xp: Namespace, rows: Array, shape: tuple[int, ...]) -> Array:
    """The array that `to_blocks` was given, in its shape."""
    size = math.prod(shape)
    count, block = (int(dim) for dim in rows.shape)
    flat = xp.reshape(rows, (count * block,))
    return xp.reshape(leading(flat, size) if count * block > size else flat, shape)


def normalised(xp: Namespace, rows: Array) -> tuple[Array, Array]:
    """The rows divided by their largest magnitudes, and these; a row of zeros stays zero.

    They are multiplied by the inverse, as bitsandbytes does, so that codes are the same where a value is just between
    two of them.
    """
    absmax = xp.max(xp.abs(rows), axis=1, keepdims=True)
    inverse = 1.0 / xp.where(absmax > SMALLEST, absmax, xp.full_like(absmax, SMALLEST))
    return rows * inverse, xp.reshape(absmax, (int(rows.shape[0]),))


def scaled(xp: Namespace, rows: Array, absmax: Array) -> Array:
    """The inverse of `normalised`."""
    return rows * xp.reshape(absmax, (int(rows.shape[0]), 1))


def like(xp: Namespace, table: Any, dtype: Any) -> Array:
    """A constant in the dtype that is computed in."""
    return xp.astype(xp.asarray(table), dtype)
