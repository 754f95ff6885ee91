"""Adaptive Nesterov momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent

__all__ = ["Adan"]


@dataclass(frozen=True)
class Adan(Descent):
    """Adan (Xie et al., TPAMI 2024, arXiv:2208.06677).

    With p the last gradient, or g itself at the first step::

        d = g - p
        m ← β₁·m + (1 - β₁)·g
        w ← β₂·w + (1 - β₂)·d
        n ← β₃·n + (1 - β₃)·(g + β₂·d)²
        θ ← θ - lr·(m/(1 - β₁ᵗ) + β₂·w/(1 - β₂ᵗ)) / (√n/√(1 - β₃ᵗ) + eps)

    Slots `exp_avg` (m), `exp_avg_diff` (w), `exp_avg_sq` (n) and `previous_grad` (p). The betas are those of code, not
    of the paper, which writes 1 - β.

    Semantics and defaults of the authors' code and of pytorch_optimizer: weight decay divides after the step.
    `optax.adan` mixes with 1 - β₂ instead of β₂ and is another rule.
    """

    beta1: float = 0.98
    beta2: float = 0.92
    beta3: float = 0.99
    eps: float = 1e-8
    decay: Decay = "proximal"

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the three averages and the last gradient."""
        return zeros(param, "exp_avg", "exp_avg_diff", "exp_avg_sq", "previous_grad")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; √(1 - β₃ᵗ) is moved to the scalars, as in Adam."""
        beta2 = hyper["beta2"]
        difference = grad - xp.where(step == 1, grad, state["previous_grad"])
        ahead = grad + cast_like(xp, beta2, param) * difference
        slots = {
            "exp_avg": ema(xp, hyper["beta1"], state["exp_avg"], grad),
            "exp_avg_diff": ema(xp, beta2, state["exp_avg_diff"], difference),
            "exp_avg_sq": ema(xp, hyper["beta3"], state["exp_avg_sq"], ahead * ahead),
            "previous_grad": grad,
        }
        root_bias3 = xp.sqrt(bias_correction(xp, hyper["beta3"], step))
        of_average = hyper["lr"] * root_bias3 / bias_correction(xp, hyper["beta1"], step)
        of_difference = hyper["lr"] * root_bias3 * beta2 / bias_correction(xp, beta2, step)
        numerator = (
            cast_like(xp, of_average, param) * slots["exp_avg"]
            + cast_like(xp, of_difference, param) * slots["exp_avg_diff"]
        )
        denominator = xp.sqrt(slots["exp_avg_sq"]) + cast_like(xp, hyper["eps"] * root_bias3, param)
        return numerator / denominator, slots
