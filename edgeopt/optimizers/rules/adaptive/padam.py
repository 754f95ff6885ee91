"""Adam with a smaller power of the second moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Descent
from edgeopt.schedules import Schedule

__all__ = ["PAdam"]


@dataclass(frozen=True)
class PAdam(Descent):
    """Padam (Chen et al., IJCAI 2020, arXiv:1806.06763): between Adam (`partial` of 1/2) and SGD with momentum (0).

    With m and v the moments of Adam::

        θ ← θ - lr·√(1 - β₂ᵗ)/(1 - β₁ᵗ) · m / (√v + eps)^(2·partial)

    Slots `exp_avg` (m) and `exp_avg_sq` (v).

    Semantics and defaults of pytorch_optimizer.
    """

    lr: Schedule | float = 1e-1
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    partial: float = 0.25

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the two moments."""
        return zeros(param, "exp_avg", "exp_avg_sq")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        rate = hyper["lr"] * root_bias2 / bias_correction(xp, hyper["beta1"], step)
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        denominator = xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"], param)
        denominator = denominator ** cast_like(xp, 2.0 * hyper["partial"], param)
        return cast_like(xp, rate, param) * exp_avg / denominator, {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
