"""Adam whose averages follow the change of the gradient: BGE-Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.norms import finite_square, safe_norm
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.ingredients import Ingredient, Normal
from edgeopt.optimizers.rules.descent import Descent

__all__ = ["BGEAdam"]


@dataclass(frozen=True)
class BGEAdam(Descent):
    """BGE-Adam (Shao et al., Symmetry 16(5):623, 2024, doi:10.3390/sym16050623).

    ::

        r = min(‖g - g'‖/(‖g'‖ + eps), 1),  g' the gradient before; 0 at the first update
        βᵢ = βᵢ_min + (βᵢ_max - βᵢ_min)·(1 - r)                  for i = 1, 2
        p ← alpha·p + (1 - alpha)·g
        m ← β₁·m + (1 - β₁)·p
        v ← β₂·v + (1 - β₂)·p²
        θ ← θ - lr·E/(1 - β₁_maxᵗ)·m/(√v/√(1 - β₂_maxᵗ) + eps),   E = 1 + entropy_weight·mean(N)

    N are normal numbers, as many as the tensor has elements. Slots `exp_avg` (m), `exp_avg_sq` (v), `prediction` (p)
    and `previous_grad` (g'). Squares beyond 2⁻³² of the largest finite number count as that number.

    Semantics of the paper as far as it defines them; there is no code of the authors'. Where it leaves a choice, this
    is ours: r is limited to 1, and is 0 at the first update, before which there is no gradient; p takes the place of
    the gradient in both moments; the bias is corrected with the largest averages; and the noise, which the paper calls
    entropy, multiplies the step. What others call OptimizedBGEAdam is the same mathematics and no other rule here.
    """

    beta1_min: float = 0.5
    beta1_max: float = 0.9
    beta2_min: float = 0.9
    beta2_max: float = 0.999
    alpha: float = 0.5
    entropy_weight: float = 0.01
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("alpha", self.alpha)

    @property
    def elementwise(self) -> bool:
        """The rate of change is one of tensors."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros."""
        return zeros(param, "exp_avg", "exp_avg_sq", "prediction", "previous_grad")

    def ingredients(self, param: np.ndarray[Any, Any]) -> dict[str, Ingredient]:
        """The noise of the step."""
        return {"noise": Normal()}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        eps, previous = cast_like(xp, hyper["eps"], param), state["previous_grad"]
        axes = tuple(range(param.ndim))
        # Halves, because a difference of large numbers may overflow.
        change = safe_norm(xp, 0.5 * grad - 0.5 * previous, axes) / (0.5 * safe_norm(xp, previous, axes) + 0.5 * eps)
        change = xp.reshape(xp.astype(change, xp.float64), ())
        change = xp.where(step == 1, 0.0 * hyper["eps"], xp.minimum(change, xp.ones_like(change)))
        beta1 = hyper["beta1_min"] + (hyper["beta1_max"] - hyper["beta1_min"]) * (1.0 - change)
        beta2 = hyper["beta2_min"] + (hyper["beta2_max"] - hyper["beta2_min"]) * (1.0 - change)

        prediction = ema(xp, hyper["alpha"], state["prediction"], grad)
        exp_avg = ema(xp, beta1, state["exp_avg"], prediction)
        exp_avg_sq = ema(xp, beta2, state["exp_avg_sq"], finite_square(xp, prediction))
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2_max"], step))
        entropy = 1.0 + hyper["entropy_weight"] * xp.astype(xp.mean(state["noise"]), xp.float64)
        rate = hyper["lr"] * entropy * root_bias2 / bias_correction(xp, hyper["beta1_max"], step)
        denominator = xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"] * root_bias2, param)
        slots = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "prediction": prediction, "previous_grad": grad}
        return cast_like(xp, rate, param) * exp_avg / denominator, slots
