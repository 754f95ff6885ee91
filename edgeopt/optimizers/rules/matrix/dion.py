"""Momentum made orthonormal in a subspace that follows it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, fraction
from edgeopt.optimizers.arithmetic.matrices import orthonormal, transposed
from edgeopt.optimizers.arithmetic.norms import safe_norm
from edgeopt.optimizers.base import Arrays, Updated, static
from edgeopt.optimizers.rules.descent import Decay, Descent
from edgeopt.optimizers.rules.matrix.muon import as_matrix
from edgeopt.schedules import Schedule

__all__ = ["Dion"]

# What arbitrary directions are mixed in with, and what they may bring with them from columns that are not arbitrary.
_MIXED, _ARBITRARY = 2.0**-46, 2.0**-40


@dataclass(frozen=True)
class Dion(Descent):
    """Dion (Ahn et al. 2025, arXiv:2504.05295): orthonormal steps of low rank, by one step of the power method.

    With matrices P and Q of `rank` columns, or fewer where the matrix is smaller, and μ the momentum::

        B ← B + g
        P = B·Q, made orthonormal
        R = Bᵀ·P
        B ← B - (1 - μ)·P·Rᵀ                      what the step leaves out stays whole
        Q ← R/(‖R‖ + eps), with norms of columns
        θ ← θ - lr·√(rows/columns)·P·Qᵀ

    A tensor of more than two dimensions is a matrix whose rows are its first dimension; a vector or scalar is one row,
    for which the rule normalises the momentum. Slots `momentum_buffer` (B) and `basis` (Q), which begins with fixed
    normal numbers, the same for each parameter of a shape.

    Semantics of the authors' simple code, where P comes from a QR factorisation in float32. Here it comes from
    Gram-Schmidt, twice, in float64: the same up to signs of columns, which cancel. Columns of R within the rounding of
    its largest, 2⁻⁴⁰ of it or 16 machine epsilons of the parameter's dtype, count as zero here, so that a momentum of
    less than the rank gives no step in random directions. The default rank is ours.
    """

    lr: Schedule | float = 1e-2
    momentum: float = 0.95
    eps: float = 1e-8
    rank: int = static(128)
    weight_decay: float = 0.01
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("momentum", self.momentum, closed=True)
        at_least("rank", self.rank, 1)

    @property
    def elementwise(self) -> bool:
        """The rule is one of matrices."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum, and an arbitrary basis."""
        rows, columns = as_matrix(param.shape)
        drawn = np.random.default_rng(0).standard_normal((columns, min(self.rank, rows, columns)))
        return {"momentum_buffer": np.zeros_like(param), "basis": drawn.astype(param.dtype)}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        shape = tuple(int(size) for size in param.shape)
        rows, columns = as_matrix(shape)
        buffer = xp.astype(xp.reshape(state["momentum_buffer"] + grad, (rows, columns)), xp.float64)
        left = _orthonormal(xp, xp.matmul(buffer, xp.astype(state["basis"], xp.float64)))
        right = xp.matmul(transposed(xp, buffer), left)
        buffer = buffer - (1.0 - hyper["momentum"]) * xp.matmul(left, transposed(xp, right))
        size = safe_norm(xp, right, (0,))
        known = size > max(16.0 * float(xp.finfo(param.dtype).eps), _ARBITRARY) * xp.max(size)
        basis = xp.where(known, right / (size + hyper["eps"]), xp.zeros_like(right))
        step_size = hyper["lr"] * math.sqrt(rows / columns)
        delta = step_size * xp.matmul(left, transposed(xp, basis))
        slots = {
            "momentum_buffer": xp.reshape(cast_like(xp, buffer, param), shape),
            "basis": cast_like(xp, basis, param),
        }
        return xp.reshape(cast_like(xp, delta, param), shape), slots


def _orthonormal(xp: Namespace, matrix: Array) -> Array:
    """Columns made orthonormal, with arbitrary directions for those that depend on others, as the Q of QR has."""
    rows, columns = (int(size) for size in matrix.shape)
    peak = xp.max(xp.abs(matrix))
    peak = xp.where(peak > 0, peak, xp.ones_like(peak))
    # With a zero that is computed, so that a graph computes their products, too, and holds no matrix of constants.
    places = (xp.asarray(np.arange(1.0, size + 1.0)) + xp.zeros_like(peak) for size in (rows, columns))
    vertical, horizontal = (xp.expand_dims(place, axis=axis) for axis, place in zip((1, 0), places, strict=True))
    # Above the rounding of columns, which might lie in the span of those before, and below all that matters in them.
    return orthonormal(xp, matrix / peak + _MIXED * xp.cos(vertical * horizontal))
