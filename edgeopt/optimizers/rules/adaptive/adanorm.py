"""Adam on gradients that are scaled up to their average norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.norms import finite_square
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent

__all__ = ["AdaNorm"]


@dataclass(frozen=True)
class AdaNorm(Descent):
    """AdamNorm (Dubey, Singh and Chaudhuri, WACV 2023, arXiv:2210.06364).

    ::

        e ← r·e + (1 - r)·‖g‖
        s = g·max(1, e/‖g‖)
        m ← β₁·m + (1 - β₁)·s
        v ← β₂·v + (1 - β₂)·g²
        θ ← θ - lr/(1 - β₁ᵗ) · m / (√v/√(1 - β₂ᵗ) + eps)

    A zero gradient is not scaled. Slots `exp_avg` (m), `exp_avg_var` (v) and the scalar `exp_grad_norm` (e). Squares
    beyond 2⁻³² of the largest finite number count as that number.

    Semantics of the paper. pytorch_optimizer has eps before the bias correction, and a second one under the root.
    """

    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8
    r: float = 0.95
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("r", self.r)

    @property
    def elementwise(self) -> bool:
        """The gradient is scaled by its norm."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros; a scalar for the norm."""
        return {**zeros(param, "exp_avg", "exp_avg_var"), "exp_grad_norm": np.zeros((), param.dtype)}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; √(1 - β₂ᵗ) is moved to the scalars, as in Adam."""
        square = finite_square(xp, grad)
        size = xp.sqrt(xp.sum(square))
        average = ema(xp, hyper["r"], state["exp_grad_norm"], size)
        one = xp.ones_like(size)
        scale = xp.where(size > 0, xp.maximum(average / xp.where(size > 0, size, one), one), one)

        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        rate = hyper["lr"] * root_bias2 / bias_correction(xp, hyper["beta1"], step)
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], scale * grad)
        exp_avg_var = ema(xp, hyper["beta2"], state["exp_avg_var"], square)
        denominator = xp.sqrt(exp_avg_var) + cast_like(xp, hyper["eps"] * root_bias2, param)
        slots = {"exp_avg": exp_avg, "exp_avg_var": exp_avg_var, "exp_grad_norm": average}
        return cast_like(xp, rate, param) * exp_avg / denominator, slots
