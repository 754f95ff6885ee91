"""Rows and columns in the place of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgeopt.array_types import Array, Namespace
from edgeopt.quantization.base import Format, Parts

__all__ = ["Factored"]


@dataclass(frozen=True)
class Factored(Format):
    """The means of rows and columns of a matrix without negative values::

        x_ij ≈ r_i · c_j / mean r

    which is the nearest matrix of rank 1 in the sense of the I-divergence (Shazeer and Stern, ICML 2018,
    arXiv:1804.04235). A tensor is a matrix of its first axis by the others. The parts are `row` and `column`.
    """

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Two axes or more, with more than one row and column."""
        return len(shape) > 1 and shape[0] > 1 and any(dim > 1 for dim in shape[1:])

    def encode(self, xp: Namespace, array: Array, uniform: Array | None = None) -> dict[str, Array]:
        """The means; see `Format.encode`."""
        matrix = xp.reshape(array, (int(array.shape[0]), -1))
        return {"row": xp.mean(matrix, axis=1), "column": xp.mean(matrix, axis=0)}

    def decode(self, xp: Namespace, parts: Parts, shape: tuple[int, ...], dtype: Any) -> Array:
        """The outer product; see `Format.decode`."""
        row, column = parts["row"], parts["column"]
        mean = xp.mean(row)
        share = row / xp.where(mean > 0.0, mean, xp.ones_like(mean))
        return xp.reshape(xp.expand_dims(share, axis=1) * xp.expand_dims(column, axis=0), shape)
