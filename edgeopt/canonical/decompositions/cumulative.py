"""Cumulative products (opset 26)."""

from __future__ import annotations

from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.axes import positions
from edgeopt.tracing.products import running_product
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
    return running_product(n.x, axis, length, reverse=reverse, exclusive=exclusive)


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
