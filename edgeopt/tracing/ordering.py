"""Letting one tensor wait for others: a graph has no other order than that of its data."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from edgeopt.tracing import functions as xp
from edgeopt.tracing.array import Array
from edgeopt.tracing.operators import op

__all__ = ["after", "zero_after"]


def zero_after(arrays: Iterable[Array]) -> Array:
    """An int64 0 that is known when all of these are, and not before; no runtime sees that it is one."""
    firsts = []
    for array in arrays:
        first = op.ReduceSum(xp.astype(op.Slice(op.Reshape(array, [-1]), [0], [1], [0]), np.float32), [0], keepdims=1)
        firsts.append(xp.astype(op.IsNaN(first), np.int64))
    return op.ReduceSum(op.Concat(*firsts, axis=0), [0], keepdims=0) * 0


def after(array: Array, zero: Array) -> Array:
    """The array again, of known rank, behind a zero: without a copy, and of whatever sizes it has.

    It is reshaped to itself. Each 0 of the target stands for the size that there is, so that it does no harm if a model
    declares sizes that do not hold.
    """
    shape = array.shape
    return op.Reshape(array, array.tracer.constant(np.zeros(array.ndim, np.int64)) + zero).with_shape(shape)
