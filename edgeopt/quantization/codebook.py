"""Blockwise quantization to the nearest value of a table."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.quantization.base import Format, Parts
from edgeopt.quantization.blocks import block_count, like, normalised, scaled, to_blocks, whole

__all__ = ["Codebook"]

NumpyArray: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Codebook(Format):
    """Each block is divided by its largest magnitude, and each quotient becomes the nearest value of a table::

        a_b = max |x_b|        code = argmin_k |x / a_b - table_k|        x ≈ table_code · a_b

    The parts are `codes` and `absmax`, one number of the array's type for each block. Codes of 8 bits have the array's
    shape; those of 4 bits lie two in a byte, the first one in the upper half. A tie goes to the smaller value.

    The layout is that of bitsandbytes (`quantize_blockwise`, `quantize_4bit`) and torchao (`OptimState8bit`,
    `OptimState4bit`), whose codes these equal where they compute the nearest value too.

    Args:
        table: The values, ascending, between -1 and 1; at most 256.
        block: How many elements share a scale.
        codes: The byte that stands for each value; its place in the table where None.

    Raises:
        ConfigurationError: The table is not ascending or too long, or a block is empty or odd.
    """

    table: tuple[float, ...] = field(repr=False)
    block: int = 256
    codes: tuple[int, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require(1 < len(self.table) <= 256, f"a table has 2 to 256 values, got {len(self.table)}")
        require(all(a < b for a, b in zip(self.table, self.table[1:], strict=False)), "the table must be ascending")
        require(self.block > 0 and self.block % 2 == 0, f"block must be even and above 0, got {self.block!r}")
        require(self.codes is None or len(self.codes) == len(self.table), "there must be a code for each value")

    @property
    def packed(self) -> bool:
        """Whether two codes share a byte."""
        return len(self.table) <= 16 and self.codes is None

    def encode(self, xp: Namespace, array: Array, uniform: Array | None = None) -> dict[str, Array]:
        """The codes and the largest magnitude of each block; see `Format.encode`."""
        rows, absmax = normalised(xp, to_blocks(xp, array, self.block))
        codes = self._nearest(xp, rows)
        if self.packed:
            count = int(rows.shape[0]) * self.block // 2
            pairs = xp.reshape(xp.astype(codes, array.dtype), (count, 2))
            # A product with a matrix: a sum over so short an axis would take several times as long.
            packed = xp.reshape(xp.matmul(pairs, like(xp, np.asarray([[16.0], [1.0]]), array.dtype)), (count,))
            return {"codes": xp.astype(packed, xp.uint8), "absmax": absmax}
        shape = tuple(int(dim) for dim in array.shape)
        return {"codes": whole(xp, xp.astype(codes, xp.uint8), shape), "absmax": absmax}

    def decode(self, xp: Namespace, parts: Parts, shape: tuple[int, ...], dtype: Any) -> Array:
        """The nearest values, scaled; see `Format.decode`."""
        values = like(xp, self._by_code(), dtype)
        codes, count = parts["codes"], block_count(shape, self.block)
        if self.packed:
            pairs = like(xp, _pairs(self._by_code()), dtype)
            rows = xp.reshape(xp.take(pairs, xp.astype(codes, xp.int32), axis=0), (count, self.block))
        else:
            found = xp.take(values, xp.reshape(xp.astype(codes, xp.int32), (math.prod(shape),)), axis=0)
            rows = to_blocks(xp, found, self.block)
        return whole(xp, scaled(xp, rows, parts["absmax"]), shape)

    def _by_code(self) -> np.ndarray[Any, Any]:
        if self.codes is None:
            return np.asarray(self.table, np.float32)
        values = np.zeros(256, np.float32)
        values[list(self.codes)] = self.table
        return values

    def _nearest(self, xp: Namespace, rows: Array) -> Array:
        """The codes of the nearest values, int32."""
        buckets = _buckets(self.table, "64" in str(rows.dtype))
        size = int(rows.shape[0]) * int(rows.shape[1])
        flat = xp.reshape(rows, (size,))
        places = _searched(xp, flat, self.table) if buckets is None else _looked_up(xp, flat, buckets)
        if self.codes is not None:
            places = xp.take(xp.asarray(np.asarray(self.codes, np.int32)), places, axis=0)
        return xp.reshape(places, tuple(int(dim) for dim in rows.shape))


class _Buckets(NamedTuple):
    """Intervals of equal width in the fourth root, with at most one middle between neighbours in each.

    Attributes:
        number: How many there are between 0 and 1, and as many between -1 and 0 if there are values below 0.
        first: The place of the value that the lower end of a bucket is next to.
        limit: The middle within the bucket, above which it is the next place; 2, which nothing reaches, where none is.
        signed: Whether there are values below 0.
    """

    number: int
    first: NumpyArray
    limit: NumpyArray
    signed: bool


def _looked_up(xp: Namespace, flat: Array, buckets: _Buckets) -> Array:
    """The places of the nearest values, from the bucket of each element and one comparison.

    The bucket of a middle was found by the same operations, so that what is in lower ones is below it.
    """
    root = xp.sqrt(xp.sqrt(xp.abs(flat) if buckets.signed else flat))
    scaled = root * float(buckets.number)
    if buckets.signed:
        scaled = scaled * xp.sign(flat) + float(buckets.number)
    index = xp.astype(scaled, xp.int32)
    above = flat > xp.take(like(xp, buckets.limit, flat.dtype), index, axis=0)
    return xp.take(xp.astype(xp.asarray(buckets.first), xp.int32), index, axis=0) + xp.astype(above, xp.int32)


def _searched(xp: Namespace, flat: Array, values: tuple[float, ...]) -> Array:
    """The places of the nearest values: a binary search among the middles between neighbours."""
    steps = math.ceil(math.log2(len(values)))
    # One beyond the last is never reached.
    middles = np.full(2**steps - 1, np.inf)
    middles[: len(values) - 1] = _middles(values)
    limits = like(xp, middles, flat.dtype)
    places = xp.astype(flat > like(xp, middles[2 ** (steps - 1) - 1], flat.dtype), xp.int32) * 2 ** (steps - 1)
    for step in range(steps - 2, -1, -1):
        above = flat > xp.take(limits, places + (2**step - 1), axis=0)
        places = places + xp.astype(above, xp.int32) * 2**step
    return places


@functools.cache
def _buckets(values: tuple[float, ...], double: bool) -> _Buckets | None:
    """As few as will do; None where it takes so many that a graph would grow by more than some kilobytes."""
    middles = _middles(values).astype(np.float64 if double else np.float32)
    signed = bool(middles[0] < 0.0)
    for count in (16, 32, 64, 128, 256, 512, 1024):
        scaled = np.sqrt(np.sqrt(np.abs(middles))) * middles.dtype.type(count)
        index = (scaled * np.sign(middles) + middles.dtype.type(count) if signed else scaled).astype(np.int32)
        if np.unique(index).size == index.size:
            limit = np.full((2 if signed else 1) * count + 1, 2.0)
            limit[index] = middles
            return _Buckets(count, np.searchsorted(index, np.arange(limit.size)).astype(np.uint8), limit, signed)
    return None


def _middles(values: tuple[float, ...]) -> NumpyArray:
    table = np.asarray(values, np.float32).astype(np.float64)
    return (table[:-1] + table[1:]) / 2


def _pairs(values: NumpyArray) -> NumpyArray:
    """The two values that each byte stands for, the one of its upper half first."""
    byte = np.arange(256)
    return np.stack([values[byte // 16], values[byte % 16]], axis=1)
