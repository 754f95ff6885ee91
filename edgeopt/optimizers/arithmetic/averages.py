"""Moving averages, and the correction of their bias towards zero."""

from __future__ import annotations

from edgeopt.array_types import Array, Namespace, cast_like

__all__ = ["bias_correction", "ema"]


def ema(xp: Namespace, beta: Array, average: Array, value: Array) -> Array:
    """The exponential moving average beta·average + (1 - beta)·value, with beta a 0-d float64 array."""
    return cast_like(xp, beta, value) * average + cast_like(xp, 1.0 - beta, value) * value


def bias_correction(xp: Namespace, beta: Array, step: Array) -> Array:
    """1 - betaᵗ in float64: the weight that an average which began at zero has collected after t steps."""
    return 1.0 - beta ** xp.astype(step, xp.float64)
