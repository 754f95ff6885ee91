"""Cumulative products (opset 26)."""

from __future__ import annotations

import numpy as np

from edgeopt.canonical.decompositions.attending import positions
from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def _problem(n: Site) -> str | None:
    return "its axis is not known before the run" if n.constant(1) is None else None


@decomposition("CumProd", limits=_problem)
def cum_prod(n: Site) -> Array:
    """By doubling, in as many products as the length has binary digits, where the length is known.

    Otherwise each element is the product over a row of a triangle, which is right for zeros too.
    """
    known = n.constant(1)
    axis = int(known.reshape(()) if known is not None else 0) % n.x.ndim
    reverse, exclusive = bool(n.attr("reverse", 0)), bool(n.attr("exclusive", 0))
    length = n.x.shape[axis]
    if not isinstance(length, int):
        return _by_triangle(n.x, axis, reverse, exclusive)
    y = _shifted(n.x, axis, 1, reverse) if exclusive else n.x
    step = 1
    while step < length:
        y = y * _shifted(y, axis, step, reverse)
        step *= 2
    return y


def _shifted(x: Array, axis: int, step: int, reverse: bool) -> Array:
    """The elements moved along the axis, ones where none arrive."""
    pads = np.zeros(2 * x.ndim, np.int64)
    pads[axis], pads[axis + x.ndim] = (-step, step) if reverse else (step, -step)
    return op.Pad(x, pads, x.tracer.constant(1.0, x.dtype)).with_shape(x.shape)


def _by_triangle(x: Array, axis: int, reverse: bool, exclusive: bool) -> Array:
    """For each element a product along a new axis behind the old one."""
    at = positions(x, axis)
    own, other = op.Unsqueeze(at, [1]), op.Unsqueeze(at, [0])
    if reverse:
        own, other = other, own
    counted = other < own if exclusive else other <= own
    # One dimension for each that comes after the two of the triangle.
    behind = list(range(2, 1 + x.ndim - axis))
    mask = op.Unsqueeze(counted, behind) if behind else counted
    factors = op.Where(mask, op.Unsqueeze(x, [axis]), x.tracer.constant(1.0, x.dtype))
    return op.ReduceProd(factors, [axis + 1], keepdims=0).with_shape(x.shape)
