"""Norms of whole tensors, and the ratio by which layerwise rules scale a step."""

from __future__ import annotations

from edgeopt.array_types import Array, Namespace

__all__ = ["count", "finite_square", "norm", "safe_norm", "trust_ratio"]


def norm(xp: Namespace, x: Array) -> Array:
    """The Euclidean norm of all elements, a 0-d array, of numbers whose squares may overflow or vanish too.

    Where all are next to the smallest numbers that there are, so that nothing can be divided by them, it is 0.
    """
    peak = xp.max(xp.abs(x))
    peak = xp.where(peak > 2.0**24 / float(xp.finfo(x.dtype).max), peak, xp.ones_like(peak))
    scaled = x / peak
    return peak * xp.sqrt(xp.sum(scaled * scaled))


def safe_norm(xp: Namespace, x: Array, axes: tuple[int, ...]) -> Array:
    """The Euclidean norm over some axes, which are kept, for numbers whose squares may overflow or vanish."""
    peak = xp.max(xp.abs(x), axis=axes, keepdims=True)
    peak = xp.where(peak > 0, peak, xp.ones_like(peak))
    scaled = x / peak
    return peak * xp.sqrt(xp.sum(scaled * scaled, axis=axes, keepdims=True))


def count(xp: Namespace, x: Array) -> Array:
    """The number of elements, a 0-d array of the same dtype."""
    return xp.sum(xp.ones_like(x))


def trust_ratio(xp: Namespace, weight: Array, step: Array, coefficient: Array | float = 1.0) -> Array:
    """coefficient·weight/step for two norms, and 1 where one of them is zero."""
    one = xp.ones_like(weight)
    usable = xp.logical_and(weight > 0, step > 0)
    return xp.where(usable, coefficient * weight / xp.where(usable, step, one), one)


def finite_square(xp: Namespace, x: Array) -> Array:
    """x², at most 2⁻³² of the largest finite number, so that means and quotients of squares stay finite."""
    return xp.minimum(x * x, xp.asarray(float(xp.finfo(x.dtype).max) * 2.0**-32, dtype=x.dtype))
