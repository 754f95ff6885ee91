"""Adam with momentum after normalisation instead of before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent
from edgeopt.schedules import Schedule

__all__ = ["LaProp"]


@dataclass(frozen=True)
class LaProp(Descent):
    """LaProp (Ziyin et al. 2020, arXiv:2002.04839).

    ::

        v ← β₂·v + (1 - β₂)·g²
        m ← β₁·m + (1 - β₁)·lr·g / (√(v/(1 - β₂ᵗ)) + eps)
        l ← β₁·l + (1 - β₁)·lr
        θ ← θ - lr/l · m

    The learning rate is inside the momentum. With a constant one lr/l is 1/(1 - β₁ᵗ); while every rate so far was zero
    there is no step. Slots `exp_avg` (m), `exp_avg_sq` (v) and the float64 scalar `exp_avg_lr` (l).

    Semantics and defaults of the authors' code and of timm, which shrinks the parameter by lr·weight_decay after the
    step.
    """

    lr: Schedule | float = 4e-4
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-15
    decay: Decay = "after"

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros; a scalar for the learning rate."""
        return {**zeros(param, "exp_avg", "exp_avg_sq"), "exp_avg_lr": np.zeros((), np.float64)}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; √(1 - β₂ᵗ) is moved to the scalars, as in Adam."""
        beta1, lr = hyper["beta1"], hyper["lr"]
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        denominator = xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"] * root_bias2, param)
        fresh = cast_like(xp, (1.0 - beta1) * lr * root_bias2, param) * grad / denominator
        exp_avg = cast_like(xp, beta1, param) * state["exp_avg"] + fresh
        exp_avg_lr = beta1 * state["exp_avg_lr"] + (1.0 - beta1) * lr
        rate = lr / xp.where(exp_avg_lr == 0.0, xp.ones_like(exp_avg_lr), exp_avg_lr)
        slots = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "exp_avg_lr": exp_avg_lr}
        return cast_like(xp, rate, param) * exp_avg, slots
