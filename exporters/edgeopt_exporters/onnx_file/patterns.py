"""What the values of a constant say by themselves: masks, tables that follow a formula, banks of filters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["pattern_of"]

# Masks are written with numbers that no weight has.
_LARGEST_WEIGHT = 1e8
_MASKING = -1e3
# Shorter rows may follow any formula by chance.
_SHORTEST = 8
_LONGEST = 256
_ORDERS = (1, 2, 3, 6)
_SAMPLED = 6
_RESIDUAL = 1e-4
_SPARSE = 0.6


def pattern_of(array: NDArray[np.generic]) -> str | None:
    """What a constant of more than one element is, if its values leave no doubt that nothing trained them."""
    values = array.astype(np.float64)
    if not np.isfinite(values).all() or np.abs(values).max(initial=0.0) > _LARGEST_WEIGHT:
        return "it masks: its numbers are larger than any weight's"
    distinct = np.unique(values) if values.size < 100_000 else np.unique(values.flat[:100_000])
    if len(distinct) == 2 and distinct[1] == 0 and distinct[0] <= _MASKING:
        return "it masks: zeros and one large negative number"
    if len(distinct) < 2:
        return None
    if set(distinct) <= {0.0, 1.0} and values.size >= _SHORTEST:
        return "it selects: zeros and ones"
    if _is_filter_bank(values):
        return "it is a bank of filters: few, positive, side by side"
    return "its values follow a formula: a grid, a window, sines" if _follows_a_formula(values) else None


def _follows_a_formula(values: NDArray[np.float64]) -> bool:
    """Whether along some axis every element is the same combination of those before it.

    So are grids, geometric series, sines, their products with windows, and nothing that was trained.
    """
    for axis, length in enumerate(values.shape):
        if length < _SHORTEST:
            continue
        rows = np.moveaxis(values, axis, -1).reshape(-1, length)
        rows = rows[np.argsort(-np.ptp(rows, axis=1))[:_SAMPLED]]
        if all(_is_recurrent(row) for row in rows):
            return True
    return False


def _is_recurrent(row: NDArray[np.float64]) -> bool:
    row = row[:_LONGEST]
    if not np.ptp(row):
        return True
    row = (row - row.mean()) / np.ptp(row)
    for order in _ORDERS:
        if len(row) < max(_SHORTEST, 4 * order):
            break
        windows = np.lib.stride_tricks.sliding_window_view(row, order + 1)
        known = np.hstack([windows[:, :-1], np.ones((len(windows), 1))])
        weights, *_ = np.linalg.lstsq(known, windows[:, -1], rcond=None)
        if np.abs(known @ weights - windows[:, -1]).max() < _RESIDUAL:
            return True
    return False


def _is_filter_bank(values: NDArray[np.float64]) -> bool:
    """Whether rows or columns are short bumps on zeros."""
    if values.ndim < 2 or min(values.shape[-2:]) < 4 or (values < 0).any():
        return False
    if np.mean(values == 0) < _SPARSE:
        return False
    matrix = values.reshape(-1, *values.shape[-2:])[0] > 0
    return any(_is_side_by_side(rows) for rows in (matrix, matrix.T))


def _is_side_by_side(rows: NDArray[np.bool_]) -> bool:
    """Whether the true elements of each row follow one another, later in later rows."""
    first = -1
    for row in rows:
        places = np.flatnonzero(row)
        if not len(places):
            continue
        if places[-1] - places[0] + 1 != len(places) or places[0] < first:
            return False
        first = int(places[0])
    return True
