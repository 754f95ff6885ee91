"""Adam whose second moment is that of the surprise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent

__all__ = ["AdaBelief"]


@dataclass(frozen=True)
class AdaBelief(Descent):
    """AdaBelief (Zhuang et al., NeurIPS 2020, arXiv:2010.07468).

    ::

        m ← β₁·m + (1 - β₁)·g
        s ← β₂·s + (1 - β₂)·(g - m)² + eps
        θ ← θ - lr/(1 - β₁ᵗ) · m / (√s/√(1 - β₂ᵗ) + eps)

    The m in the second line is the new one, and eps accumulates in s at every step. Slots `exp_avg` (m),
    `exp_avg_var` (s) and, with `amsgrad`, `max_exp_avg_var`, the running maximum of s.

    Semantics and defaults of the authors' package with `rectify=False`, and of pytorch_optimizer.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-16
    amsgrad: bool = False
    decay: Decay = "before"

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the moments, and for the running maximum of the second with `amsgrad`."""
        slots = ("exp_avg", "exp_avg_var", "max_exp_avg_var") if self.amsgrad else ("exp_avg", "exp_avg_var")
        return zeros(param, *slots)

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; √(1 - β₂ᵗ) is moved to the scalars, as in Adam."""
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        rate = hyper["lr"] * root_bias2 / bias_correction(xp, hyper["beta1"], step)
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        surprise = grad - exp_avg
        variance = ema(xp, hyper["beta2"], state["exp_avg_var"], surprise * surprise)
        variance = variance + cast_like(xp, hyper["eps"], param)
        slots = {"exp_avg": exp_avg, "exp_avg_var": variance}
        if self.amsgrad:
            variance = slots["max_exp_avg_var"] = xp.maximum(state["max_exp_avg_var"], variance)
        denominator = xp.sqrt(variance) + cast_like(xp, hyper["eps"] * root_bias2, param)
        return cast_like(xp, rate, param) * exp_avg / denominator, slots
