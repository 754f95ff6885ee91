"""AdamW on variance-reduced gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.norms import norm
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent
from edgeopt.schedules import Schedule

__all__ = ["MARS"]


@dataclass(frozen=True)
class MARS(Descent):
    """MARS-AdamW (Yuan et al., ICML 2025, arXiv:2411.10438), the form that needs one gradient for each step.

    For matrices, with p the last gradient, zero at first::

        c = g + gamma·β₁/(1 - β₁)·(g - p)
        c ← c/max(1, ‖c‖)

    and then Adam's step on c. All other tensors take Adam's step on g, with `beta1_1d` and `beta2_1d`. Slots
    `exp_avg`, `exp_avg_sq` and `previous_grad` (p).

    Semantics and defaults of the authors' code: matrices are tensors of exactly two dimensions.
    """

    lr: Schedule | float = 3e-3
    beta1: float = 0.95
    beta2: float = 0.99
    beta1_1d: float = 0.9
    beta2_1d: float = 0.95
    eps: float = 1e-8
    gamma: float = 0.025
    decay: Decay = "before"

    @property
    def elementwise(self) -> bool:
        """The corrected gradient is scaled by its norm."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the moments and the last gradient."""
        return zeros(param, "exp_avg", "exp_avg_sq", "previous_grad")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; √(1 - β₂ᵗ) is moved to the scalars, as in Adam."""
        corrected, beta1, beta2 = grad, hyper["beta1_1d"], hyper["beta2_1d"]
        if param.ndim == 2:
            beta1, beta2 = hyper["beta1"], hyper["beta2"]
            weight = cast_like(xp, hyper["gamma"] * beta1 / (1.0 - beta1), param)
            corrected = grad + weight * (grad - state["previous_grad"])
            length = norm(xp, corrected)
            corrected = corrected / xp.maximum(length, xp.ones_like(length))
        root_bias2 = xp.sqrt(bias_correction(xp, beta2, step))
        rate = hyper["lr"] * root_bias2 / bias_correction(xp, beta1, step)
        exp_avg = ema(xp, beta1, state["exp_avg"], corrected)
        exp_avg_sq = ema(xp, beta2, state["exp_avg_sq"], corrected * corrected)
        denominator = xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"] * root_bias2, param)
        slots = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "previous_grad": grad}
        return cast_like(xp, rate, param) * exp_avg / denominator, slots
