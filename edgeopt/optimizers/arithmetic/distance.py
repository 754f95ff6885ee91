"""What rules that estimate the distance to the solution have in common."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from edgeopt.array_types import Array, Namespace, cast_like

__all__ = ["group_norm", "growing", "total"]


def total(xp: Namespace, parts: Sequence[Array]) -> Array:
    """The sum of 0-d arrays, in float64."""
    return reduce(lambda left, right: left + right, [xp.astype(part, xp.float64) for part in parts])


def growing(xp: Namespace, estimate: Array, distance: Array, growth_rate: float | None) -> Array:
    """The estimate, but at most `growth_rate` times the distance; None sets no limit."""
    return estimate if growth_rate is None else xp.minimum(estimate, distance * growth_rate)


def group_norm(xp: Namespace, arrays: Sequence[Array]) -> Array:
    """The Euclidean norm of all elements of all arrays, in float64, where squares in their dtype might overflow."""
    peak = reduce(xp.maximum, [xp.astype(xp.max(xp.abs(array)), xp.float64) for array in arrays])
    peak = xp.where(peak > 0, peak, xp.ones_like(peak))
    scaled = [array / cast_like(xp, peak, array) for array in arrays]
    # Of arrays of zeros the norm is 0 as well, whatever they were divided by.
    return peak * xp.sqrt(total(xp, [xp.sum(array * array) for array in scaled]))
