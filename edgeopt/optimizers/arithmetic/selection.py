"""Parts of arrays: the largest elements of a row and their places."""

from __future__ import annotations

import numpy as np

from edgeopt.array_types import Array, Namespace

__all__ = ["largest", "placed"]


def largest(xp: Namespace, rows: Array, count: int) -> tuple[Array, Array]:
    """The largest elements of each row of a matrix, the earlier one of two equal ones, and their indices, int64."""
    if hasattr(rows, "tracer"):
        values, indices = xp.top_k(rows, count)
        return values, indices
    indices = xp.argsort(rows, axis=-1, descending=True, stable=True)[:, :count]
    return xp.take_along_axis(rows, indices, axis=1), indices


def placed(xp: Namespace, like: Array, indices: Array, values: Array) -> Array:
    """A matrix of zeros with the values at the indices of each row, no index twice in a row."""
    zero = xp.zeros_like(like)
    if hasattr(zero, "tracer") or not hasattr(xp, "put_along_axis"):
        return xp.scatter(zero, 1, indices, values)  # the tracer's, and torch's
    if isinstance(zero, np.ndarray):
        np.put_along_axis(zero, indices, values, axis=1)
        return zero
    return xp.put_along_axis(zero, indices, values, axis=1, inplace=False)  # jax
