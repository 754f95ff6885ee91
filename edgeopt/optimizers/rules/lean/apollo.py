"""Gradients scaled by what Adam makes of a random projection of them: APOLLO."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import require
from edgeopt.optimizers.arithmetic.timing import starts_period
from edgeopt.optimizers.base import Arrays, Updated, static
from edgeopt.optimizers.ingredients import Ingredient, Normal
from edgeopt.optimizers.rules.lean.low_rank import LowRank, channel_ratio, limited, projected

__all__ = ["APOLLO", "APOLLOMini"]

Scaling: TypeAlias = Literal["channel", "tensor"]


@dataclass(frozen=True)
class APOLLO(LowRank):
    """APOLLO (Zhu et al., MLSys 2025, arXiv:2412.05270).

    For a matrix G with at least as many rows as columns::

        P ← normal numbers/√rank                              at the updates 1, 1 + T, 1 + 2·T, …
        R = G·P
        m ← β₁·m + (1 - β₁)·R
        v ← β₂·v + (1 - β₂)·R²
        s = ‖m/(√v + eps)‖/(‖R‖ + 1e-8), of each row;  with `scale_type="tensor"` of the whole
        S = s·G
        S ← S/(max(‖S‖/(n + 1e-8), 1.01)/1.01), n ← ‖S‖       from the second update on; at the first n ← ‖S‖
        θ ← θ - √scale·lr·√(1 - β₂ᵗ)/(1 - β₁ᵗ)·S
        θ ← θ·(1 - lr·weight_decay)

    T is `update_proj_gap`. For others R = Pᵀ·G, and s is one of columns. A tensor of more than two dimensions is a
    matrix whose rows are its first dimension; vectors and scalars have no P and no scale: this is Adam for them. Slots
    `exp_avg` (m) and `exp_avg_sq` (v) in the shape of R, `projector` (P), and `scaled_norm` (n).

    Semantics of the authors' package apollo-torch, with the rank and scale that they advise. There P is drawn from a
    seed of the parameter's, here by the bundle's generator; and a rank beyond the shorter side counts as that side.
    """

    rank: int = static(256)
    scale_type: Scaling = "channel"

    def __post_init__(self) -> None:
        super().__post_init__()
        known = get_args(Scaling)
        require(self.scale_type in known, f"scale_type must be one of {', '.join(known)}, got {self.scale_type!r}")

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros."""
        moments, matrix = self._first_moments(param), self._matrix(param.shape)
        if matrix is None:
            return moments
        rows, columns, rank = matrix
        projector = np.zeros((min(rows, columns), rank), param.dtype)
        return {**moments, "projector": projector, "scaled_norm": np.zeros((), param.dtype)}

    def ingredients(self, param: np.ndarray[Any, Any]) -> dict[str, Ingredient]:
        """The next projector."""
        matrix = self._matrix(param.shape)
        return {} if matrix is None else {"projection": Normal((min(matrix[:2]), matrix[2]))}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        rate, matrix = self._rate(xp, param, hyper, step), self._matrix(param.shape)
        if matrix is None:
            direction, slots = self._moments(xp, grad, state, hyper)
            return rate * direction, slots
        rows, columns, rank = matrix
        flat = xp.reshape(grad, (rows, columns))
        drawn = state["projection"] * (1.0 / math.sqrt(rank))
        projector = xp.where(starts_period(xp, step, self.update_proj_gap), drawn, state["projector"])
        low = projected(xp, flat, projector)
        direction, slots = self._moments(xp, low, state, hyper)
        axes = ((1,) if rows >= columns else (0,)) if self.scale_type == "channel" else (0, 1)
        scaled, size = limited(xp, flat * channel_ratio(xp, direction, low, axes), state["scaled_norm"], step)
        factor = cast_like(xp, xp.sqrt(hyper["scale"]), param) * rate
        delta = factor * xp.reshape(scaled, tuple(param.shape))
        return delta, {**slots, "projector": projector, "scaled_norm": size}


@dataclass(frozen=True)
class APOLLOMini(APOLLO):
    """APOLLO with a projection onto one dimension and one factor for a whole tensor (arXiv:2412.05270).

    The equations of `APOLLO` with these settings::

        rank = 1, scaling = "tensor", scale = 128

    Semantics of the authors' package apollo-torch, with the settings that they advise for APOLLO-Mini.
    """

    rank: int = static(1)
    scale_type: Scaling = "tensor"
    scale: float = 128.0
