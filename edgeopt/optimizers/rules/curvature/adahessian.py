"""Adam with the Hessian's diagonal in the place of the squared gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.timing import kept_unless, starts_period
from edgeopt.optimizers.base import Arrays, Updated, static, zeros
from edgeopt.optimizers.ingredients import HutchinsonDiagonal, Ingredient
from edgeopt.optimizers.rules.descent import Decay, Descent
from edgeopt.schedules import Schedule

__all__ = ["AdaHessian"]


@dataclass(frozen=True)
class AdaHessian(Descent):
    """AdaHessian (Yao et al., AAAI 2021, arXiv:2006.00719).

    ::

        m ← β₁·m + (1 - β₁)·g
        v ← β₂·v + (1 - β₂)·D²,  D = z ⊙ Hz      at the updates 1, 1 + every, 1 + 2·every, …
        θ ← θ·(1 - lr·weight_decay) - lr/(1 - β₁ᵗ) · m / ((v/(1 - β₂ᵗ))^(k/2) + eps)

    H is the Hessian of the loss and z a vector of random signs; a bundle computes Hz by differentiating the gradient.
    k is `hessian_power`. With `spatial_average` the absolute values of D are averaged over the kernel of a convolution,
    the dimensions behind the first two, as the paper does. Slots `exp_avg` (m) and `exp_hessian_diag_sq` (v).

    Semantics and defaults of pytorch_optimizer, which has no spatial average.
    """

    lr: Schedule | float = 0.1
    beta1: float = 0.9
    beta2: float = 0.999
    hessian_power: float = 1.0
    eps: float = 1e-16
    spatial_average: bool = False
    every: int = static(1)
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("every", self.every, 1)

    @property
    def elementwise(self) -> bool:
        """Averages are those of kernels."""
        return super().elementwise and not self.spatial_average

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the two moments."""
        return zeros(param, "exp_avg", "exp_hessian_diag_sq")

    def ingredients(self, param: np.ndarray[Any, Any]) -> dict[str, Ingredient]:
        """The estimate of curvature."""
        return {"curvature": HutchinsonDiagonal(self.every)}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Update the moments and return the bias-corrected step."""
        curvature = state["curvature"]
        if self.spatial_average and param.ndim > 2:
            kernel = tuple(range(2, param.ndim))
            curvature = xp.zeros_like(param) + xp.mean(xp.abs(curvature), axis=kernel, keepdims=True)
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        due = None if self.every == 1 else starts_period(xp, step, self.every)
        measured = ema(xp, hyper["beta2"], state["exp_hessian_diag_sq"], curvature * curvature)
        square = kept_unless(xp, due, measured, state["exp_hessian_diag_sq"])
        corrected = square / cast_like(xp, bias_correction(xp, hyper["beta2"], step), param)
        power = cast_like(xp, 0.5 * hyper["hessian_power"], param)
        rate = cast_like(xp, hyper["lr"] / bias_correction(xp, hyper["beta1"], step), param)
        delta = rate * exp_avg / (corrected**power + cast_like(xp, hyper["eps"], param))
        return delta, {"exp_avg": exp_avg, "exp_hessian_diag_sq": square}
