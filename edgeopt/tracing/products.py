"""Products over a stretch of an axis, without a division: right for zeros too, and for every derivative."""

from __future__ import annotations

import numpy as np

from edgeopt.tracing.array import Array
from edgeopt.tracing.operators import op

__all__ = ["running_product"]


def running_product(x: Array, axis: int, length: int, *, reverse: bool = False, exclusive: bool = False) -> Array:
    """For each element the product of those before it along an axis of known length, in log2(length) steps.

    Args:
        x: The factors.
        axis: Counted from 0.
        length: The size of the axis.
        reverse: Those behind it instead.
        exclusive: Without the element itself; it is among them otherwise.
    """
    y = _shifted(x, axis, 1, reverse) if exclusive else x
    step = 1
    while step < length:
        y = y * _shifted(y, axis, step, reverse)
        step *= 2
    return y


def _shifted(x: Array, axis: int, step: int, reverse: bool) -> Array:
    """The elements moved along the axis, ones where none arrive."""
    shape = x.shape
    pads = np.zeros(2 * x.ndim, np.int64)
    pads[axis], pads[axis + x.ndim] = (-step, step) if reverse else (step, -step)
    return op.Pad(x, pads, x.tracer.constant(1.0, x.dtype)).with_shape(shape)
