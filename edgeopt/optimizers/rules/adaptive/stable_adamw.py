"""AdamW whose step shrinks when the second moment is surprised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.norms import finite_square
from edgeopt.optimizers.base import Arrays, Rule, Updated, zeros

__all__ = ["StableAdamW"]


@dataclass(frozen=True)
class StableAdamW(Rule):
    """StableAdamW (Wortsman et al., NeurIPS 2023, arXiv:2304.13013): AdamW with the clipping of Adafactor.

    With β̂ = (βᵗ - β)/(βᵗ - 1), which needs no correction of the bias::

        m ← β̂₁·m + (1 - β̂₁)·g
        v ← β̂₂·v + (1 - β̂₂)·g²
        η = lr/max(1, √mean(g²/max(v, eps²)))          one number for the tensor
        θ ← θ·(1 - η·weight_decay) - η·m/(√v + eps)

    Slots `exp_avg` (m) and `exp_avg_sq` (v). A weight decay of exactly 0.0 is left out of the graph; `maximize` climbs.
    Squares beyond 2⁻³² of the largest finite number count as that number.

    Semantics of pytorch_optimizer without its Kahan summation.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay"})

    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 1e-2
    maximize: bool = False

    @property
    def elementwise(self) -> bool:
        """The step size is one number for the tensor."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the two moments."""
        return zeros(param, "exp_avg", "exp_avg_sq")

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step; see the class for the equations."""
        if self.maximize:
            grad = -grad
        square = finite_square(xp, grad)
        exp_avg = ema(xp, self._debiased(xp, hyper["beta1"], step), state["exp_avg"], grad)
        exp_avg_sq = ema(xp, self._debiased(xp, hyper["beta2"], step), state["exp_avg_sq"], square)
        floor = cast_like(xp, hyper["eps"] * hyper["eps"], param)
        surprise = xp.sqrt(xp.mean(square / xp.maximum(exp_avg_sq, floor)))
        rate = cast_like(xp, hyper["lr"], param) / xp.maximum(surprise, xp.ones_like(surprise))
        if self.weight_decay:
            param = (1.0 - rate * cast_like(xp, hyper["weight_decay"], param)) * param
        denominator = xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"], param)
        return param - rate * exp_avg / denominator, {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}

    @staticmethod
    def _debiased(xp: Namespace, beta: Array, step: Array) -> Array:
        """The beta with which a moving average is a weighted mean at every step."""
        return 1.0 - (1.0 - beta) / bias_correction(xp, beta, step)
