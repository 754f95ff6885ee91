"""Momentumized dual averaging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Descent
from edgeopt.schedules import Schedule

__all__ = ["MADGRAD"]


@dataclass(frozen=True)
class MADGRAD(Descent):
    """MADGRAD (Defazio and Jelassi, JMLR 2022, arXiv:2101.11075).

    With λ = (lr + eps)·√t and θ₀ the first parameter::

        s ← s + λ·g
        v ← v + λ·g²
        z = θ₀ - s/(∛v + eps)
        θ ← θ + (1 - momentum)·(z - θ)

    Slots `s`, `grad_sum_sq` (v) and `x0` (θ₀).

    Semantics and defaults of the authors' code, which adds eps to the learning rate too.
    """

    lr: Schedule | float = 1e-2
    momentum: float = 0.9
    eps: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("momentum", self.momentum)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the two sums, and the parameter for `x0`."""
        return {**zeros(param, "s", "grad_sum_sq"), "x0": param.copy()}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        weight = cast_like(xp, (hyper["lr"] + hyper["eps"]) * xp.sqrt(xp.astype(step, xp.float64)), param)
        weighted = weight * grad
        total, squares = state["s"] + weighted, state["grad_sum_sq"] + weighted * grad
        root = squares ** xp.asarray(1.0 / 3.0, dtype=param.dtype) + cast_like(xp, hyper["eps"], param)
        dual = state["x0"] - total / root
        delta = cast_like(xp, 1.0 - hyper["momentum"], param) * (param - dual)
        return delta, {"s": total, "grad_sum_sq": squares, "x0": state["x0"]}
