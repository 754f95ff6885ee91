"""Adam with a norm of its own for each element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Descent

__all__ = ["HNAdam"]


@dataclass(frozen=True)
class HNAdam(Descent):
    """HN-Adam (Reyad, Sarhan and Arafa, Neural Computing and Applications 35, 2023).

    ::

        n = norm - m/max(m, |g|)                   with 0 for 0/0
        m ← β₁·m + (1 - β₁)·g
        v ← β₂·v + (1 - β₂)·|g|ⁿ
        v̂ ← max(v̂, v) and w = v̂ where n < 2,  w = v elsewhere
        θ ← θ - lr·m/(w^(1/n) + eps)

    The first line sees the m of the step before. There is no correction of the bias. The paper draws `norm` once from
    [2, 4]; here it is a hyperparameter. Slots `exp_avg` (m), `exp_avg_sq` (v) and `max_exp_avg_sq` (v̂).

    In float32, |g|ⁿ vanishes for small gradients and a norm near 4, and the step with it depends on rounding alone.

    Semantics of the paper; no package has it.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    norm: float = 2.0

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the moments and the maximum of the second."""
        return zeros(param, "exp_avg", "exp_avg_sq", "max_exp_avg_sq")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        old, size = state["exp_avg"], xp.abs(grad)
        one = cast_like(xp, xp.ones_like(hyper["lr"]), param)
        largest = xp.maximum(old, size)
        # Where the largest is zero, the old average is negative or zero, and the quotient of the paper is undefined.
        ratio = xp.where(largest > 0, old, xp.zeros_like(old)) / xp.where(largest > 0, largest, one)
        power = cast_like(xp, hyper["norm"], param) - ratio
        exp_avg = ema(xp, hyper["beta1"], old, grad)
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], size**power)
        below = power < 2.0
        largest_sq = xp.where(below, xp.maximum(state["max_exp_avg_sq"], exp_avg_sq), state["max_exp_avg_sq"])
        second = xp.where(below, largest_sq, exp_avg_sq)
        denominator = second ** (1.0 / power) + cast_like(xp, hyper["eps"], param)
        slots = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "max_exp_avg_sq": largest_sq}
        return cast_like(xp, hyper["lr"], param) * exp_avg / denominator, slots
