"""What sums are made in."""

from __future__ import annotations

import math

import numpy as np

from edgeopt.array_types import Array, Namespace

__all__ = ["count", "logit", "mean_of_defined", "one_of", "ratio", "wide"]


def wide(xp: Namespace, array: Array) -> Array:
    """The array in at least float32: float16 ends at 65504, and neither it nor bfloat16 can count to a thousand."""
    return xp.astype(array, xp.float32) if str(array.dtype).rpartition(".")[2] in ("float16", "bfloat16") else array


def count(
    xp: Namespace, marks: Array, like: Array, *, axis: tuple[int, ...] | None = None, keepdims: bool = False
) -> Array:
    """How many marks are set, in the floating-point type in which sums over `like` are made.

    float32 counts to 2^24 exactly. Beyond, partial sums are rounded to 24 bits.
    """
    dtype = xp.float64 if str(like.dtype).endswith("float64") else xp.float32
    return xp.sum(xp.astype(marks, dtype), axis=axis, keepdims=keepdims)


def ratio(xp: Namespace, part: Array, whole: Array, there: Array) -> Array:
    """part / whole; 0 where that is 0/0, and NaN where there is nothing that it could be about."""
    nothing = xp.equal(whole, 0.0)
    found = part / xp.where(nothing, xp.ones_like(whole), whole)
    return xp.where(there, found, xp.full_like(found, xp.nan))


def mean_of_defined(xp: Namespace, values: Array) -> Array:
    """The mean of those elements of a vector that are not NaN."""
    defined = xp.logical_not(xp.isnan(values))
    return xp.sum(xp.where(defined, values, xp.zeros_like(values))) / xp.sum(xp.astype(defined, values.dtype))


def one_of(xp: Namespace, array: Array, place: int, axis: int = 0) -> Array:
    """One element along an axis, which stays with length 1."""
    return xp.take(array, xp.asarray(np.asarray([place])), axis=axis)


def logit(probability: float) -> float:
    """The logit of a probability."""
    return math.log(probability) - math.log1p(-probability)
