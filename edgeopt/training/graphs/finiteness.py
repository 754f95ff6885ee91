"""One number that tells whether everything in some tensors is finite.

Zero times a finite number is zero, and zero times anything else is NaN. So a sum of such products is 0 or NaN, however
large the numbers are; a plain sum could overflow, and ONNX Runtime's ReduceMax passes over NaN. The product of a row of
zeros and a matrix is the cheapest form: ONNX Runtime reads each element once, at the speed of memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.tracing import Array, op

__all__ = ["finite_check", "without_infinities"]

#: From so many elements on, a tensor is multiplied as a matrix; smaller ones are put together first.
_LARGE = 4096

#: The most rows of such a matrix, so that the row of zeros stays in a processor's first cache.
_ROWS = 1024

#: Takes what would be infinite in float16 beyond float32. ONNX Runtime computes float16 in float32 on a CPU, and where
#: it rounds for the state it does not for what else reads the number.
_BEYOND_FLOAT16 = float(np.finfo(np.float32).max) / 65519.9


def finite_check(arrays: Iterable[Array]) -> Array | None:
    """0.0 if every element of the floating-point arrays is finite, NaN if not; None if there are no such arrays."""
    by_dtype: dict[np.dtype[np.generic], list[Array]] = {}
    for array in {array.value: array for array in arrays if array.dtype.kind not in "iub"}.values():
        wide = array if array.dtype == np.float64 else xp.astype(array, xp.float32)
        if array.dtype == np.float16:
            wide = wide * _BEYOND_FLOAT16
        by_dtype.setdefault(wide.dtype, []).append(wide)
    totals = [xp.astype(_total(found), xp.float32) for found in by_dtype.values()]
    return sum(totals[1:], start=totals[0]) if totals else None


def without_infinities(array: Array) -> Array:
    """The array with zeros for everything but NaN: what to check of a tensor that may hold infinities."""
    return xp.where(op.IsNaN(array), array, xp.zeros_like(array))


def _total(arrays: list[Array]) -> Array:
    """The sum of the products with zero, of arrays of one dtype."""
    products, small = [], []
    for array in arrays:
        rows = _rows(array.shape)
        if rows:
            products.append(op.MatMul(_zeros(array, rows), op.Reshape(array, [rows, -1])))
        else:
            small.append(op.Reshape(array, [1, -1]))
    if small:
        products.append((xp.concat(small, axis=1) if len(small) > 1 else small[0]) * 0.0)
    total: Array = xp.sum(xp.concat(products, axis=1) if len(products) > 1 else products[0])
    return total


def _rows(shape: tuple[int | str | None, ...]) -> int:
    """The rows of a large tensor as a matrix, or 0 for a small one and one whose size has no such divisor."""
    if not all(isinstance(length, int) for length in shape):
        return 0
    size = math.prod(length for length in shape if isinstance(length, int))
    if size < _LARGE:
        return 0
    return next((rows for rows in range(_ROWS, 15, -1) if size % rows == 0), 0)


def _zeros(like: Array, count: int) -> Array:
    """A row of zeros, which a runtime makes when it loads the graph."""
    zero = ir.tensor(np.zeros(1, like.dtype))
    return op.ConstantOfShape(like.tracer.constant(np.asarray([1, count], np.int64)), value=zero)
