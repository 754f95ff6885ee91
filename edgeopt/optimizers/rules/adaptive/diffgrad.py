"""Adam that slows down where the gradient stops changing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Descent

__all__ = ["DiffGrad"]


@dataclass(frozen=True)
class DiffGrad(Descent):
    """diffGrad (Dubey et al. 2020, arXiv:1909.11015).

    With m and v the moments of Adam and p the last gradient, zero at first::

        θ ← θ - lr·√(1 - β₂ᵗ)/(1 - β₁ᵗ) · m / ((√v + eps)·(1 + exp(-|p - g|)))

    Slots `exp_avg` (m), `exp_avg_sq` (v) and `previous_grad` (p).

    Semantics and defaults of the authors' code and of torch_optimizer.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the moments and the last gradient."""
        return zeros(param, "exp_avg", "exp_avg_sq", "previous_grad")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        rate = hyper["lr"] * root_bias2 / bias_correction(xp, hyper["beta1"], step)
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        friction = 1.0 + xp.exp(-xp.abs(state["previous_grad"] - grad))
        denominator = (xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"], param)) * friction
        slots = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "previous_grad": grad}
        return cast_like(xp, rate, param) * exp_avg / denominator, slots
