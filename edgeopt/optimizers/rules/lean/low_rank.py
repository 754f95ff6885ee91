"""What rules have in common whose moments are those of a projected gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.matrices import transposed
from edgeopt.optimizers.arithmetic.norms import safe_norm
from edgeopt.optimizers.base import Arrays, static, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent

__all__ = ["LowRank", "channel_ratio", "limited", "projected", "restored"]


@dataclass(frozen=True)
class LowRank(Descent):
    """What they share: the projection onto the shorter side of a matrix, and the moments."""

    rank: int = static(128)
    update_proj_gap: int = static(200)
    scale: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    decay: Decay = "after"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("rank", self.rank, 1)
        at_least("update_proj_gap", self.update_proj_gap, 1)

    @property
    def elementwise(self) -> bool:
        """The projection is one of matrices."""
        return False

    def _matrix(self, shape: tuple[int, ...]) -> tuple[int, int, int] | None:
        """Rows, columns and rank of the matrix that a parameter is; None for vectors and scalars."""
        if len(shape) < 2:
            return None
        rows, columns = int(shape[0]), math.prod(int(size) for size in shape[1:])
        return rows, columns, min(self.rank, rows, columns)

    def _first_moments(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Zeros in the shape of the projected gradient, or of the parameter where there is no projection."""
        matrix = self._matrix(param.shape)
        if matrix is None:
            return zeros(param, "exp_avg", "exp_avg_sq")
        rows, columns, rank = matrix
        return zeros(
            np.zeros((rows, rank) if rows >= columns else (rank, columns), param.dtype), "exp_avg", "exp_avg_sq"
        )

    def _moments(self, xp: Namespace, grad: Array, state: Arrays, hyper: Arrays) -> tuple[Array, dict[str, Array]]:
        """The direction of Adam without a correction of its bias, and the moments."""
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        direction = exp_avg / (xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"], grad))
        return direction, {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}

    def _rate(self, xp: Namespace, param: Array, hyper: Arrays, step: Array) -> Array:
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        return cast_like(xp, hyper["lr"] * root_bias2 / bias_correction(xp, hyper["beta1"], step), param)


def projected(xp: Namespace, matrix: Array, projector: Array) -> Array:
    """A tall matrix times the projector (columns x rank), or the projector's transpose times a wide one."""
    if matrix.shape[0] >= matrix.shape[1]:
        return xp.matmul(matrix, projector)
    return xp.matmul(transposed(xp, projector), matrix)


def restored(xp: Namespace, low: Array, projector: Array, *, tall: bool) -> Array:
    """The matrix that has this projection, and nothing outside of it."""
    return xp.matmul(low, transposed(xp, projector)) if tall else xp.matmul(projector, low)


def channel_ratio(xp: Namespace, direction: Array, low: Array, axes: tuple[int, ...]) -> Array:
    """By how much Adam scales what is projected, along some axes."""
    return safe_norm(xp, direction, axes) / (safe_norm(xp, low, axes) + 1e-8)


def limited(xp: Namespace, scaled: Array, before: Array, step: Array) -> tuple[Array, Array]:
    """A matrix whose norm grows by a factor of 1.01 at most, from the second update on, and its norm."""
    size = xp.reshape(safe_norm(xp, scaled, (0, 1)), ())
    growth = xp.maximum(size / (before + 1e-8), xp.full_like(size, 1.01)) / 1.01
    growth = xp.where(step == 1, xp.ones_like(size), growth)
    return scaled / growth, size / growth
