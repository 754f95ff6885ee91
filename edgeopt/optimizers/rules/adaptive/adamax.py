"""Adam with the infinity norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Descent
from edgeopt.schedules import Schedule

__all__ = ["Adamax"]


@dataclass(frozen=True)
class Adamax(Descent):
    """Adamax (Kingma and Ba, ICLR 2015, arXiv:1412.6980, section 7).

    ::

        m ← β₁·m + (1 - β₁)·g
        u ← max(β₂·u, |g| + eps)
        θ ← θ - lr/(1 - β₁ᵗ) · m/u

    Slots `exp_avg` (m) and `exp_inf` (u).

    Semantics and defaults of `torch.optim.Adamax`. The paper has no eps, which leaves 0/0 while a gradient is zero.
    """

    lr: Schedule | float = 2e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the first moment and the norm."""
        return zeros(param, "exp_avg", "exp_inf")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        decayed = cast_like(xp, hyper["beta2"], param) * state["exp_inf"]
        norm = xp.maximum(decayed, self._size(xp, grad, hyper) + cast_like(xp, hyper["eps"], param))
        rate = hyper["lr"] / bias_correction(xp, hyper["beta1"], step)
        return cast_like(xp, rate, param) * exp_avg / norm, {"exp_avg": exp_avg, "exp_inf": norm}

    def _size(self, xp: Namespace, grad: Array, hyper: Arrays) -> Array:
        """What the norm is the largest of."""
        return xp.abs(grad)
