"""Places along an axis."""

from __future__ import annotations

import numpy as np

from edgeopt.tracing.array import Array
from edgeopt.tracing.operators import op

__all__ = ["positions"]


def positions(x: Array, axis: int) -> Array:
    """0, 1, … along an axis of an array."""
    size = x.shape[axis]
    if isinstance(size, int):
        return x.tracer.constant(np.arange(size, dtype=np.int64))
    at = axis % x.ndim
    zero, one = (x.tracer.constant(np.int64(number)) for number in (0, 1))
    return op.Range(zero, op.Squeeze(op.Shape(x, start=at, end=at + 1), [0]), one).with_shape((size,))
