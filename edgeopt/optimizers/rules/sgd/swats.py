"""From Adam to SGD when the time has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Descent

__all__ = ["SWATS"]


@dataclass(frozen=True)
class SWATS(Descent):
    """SWATS (Keskar and Socher 2017, arXiv:1712.07628): Adam that goes over to SGD, with a rate that it has estimated.

    Each tensor begins with Adam, whose step is Δ, and estimates the rate with which SGD would go as far::

        Δ = lr·√(1 - β₂ᵗ)/(1 - β₁ᵗ)·m/(√v + eps),  θ ← θ - Δ
        q = ‖Δ‖²/⟨Δ, g⟩,  e ← β₂·e + (1 - β₂)·q    left out where ⟨Δ, g⟩ = 0

    When t > 1, ê = e/(1 - β₂ᵗ) > 0 and |ê - q| ≤ tolerance·|q|, the tensor goes on from the next step with::

        b ← β₁·b + g
        θ ← θ - ê·(1 - β₁)·b                       with `nesterov` ê·((1 - β₁)·b + β₁·b)

    in proportion to what the schedule does from there. Slots `exp_avg` (m), `exp_avg_sq` (v) and `momentum_buffer` (b),
    and, one number for each tensor, `rate_avg` (e) and `sgd_rate` (ê/lr; 0 before the switch).

    Semantics and defaults of pytorch_optimizer with each tensor in a group of its own, without its absolute tolerance
    of 1e-8, which would end Adam at once where the rate is small, and without the 1e-15 that it adds to v. There, eps
    is the tolerance too. In torch_optimizer the buffer of SGD is scaled over and over.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    tolerance: float = 1e-6
    nesterov: bool = False

    @property
    def elementwise(self) -> bool:
        """The estimated rate is that of the tensor."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the moments and the rates."""
        scalars = {slot: np.zeros((), param.dtype) for slot in ("rate_avg", "sgd_rate")}
        return {**zeros(param, "exp_avg", "exp_avg_sq", "momentum_buffer"), **scalars}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        lr, bias2 = cast_like(xp, hyper["lr"], param), bias_correction(xp, hyper["beta2"], step)
        switched = state["sgd_rate"] > 0
        rate = hyper["lr"] * xp.sqrt(bias2) / bias_correction(xp, hyper["beta1"], step)
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        adam = cast_like(xp, rate, param) * exp_avg / (xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"], param))

        slope, square, one = xp.sum(adam * grad), xp.sum(adam * adam), xp.ones_like(state["rate_avg"])
        usable = xp.logical_and(xp.logical_and(slope != 0, xp.abs(slope) < float("inf")), xp.logical_not(switched))
        guess = square / xp.where(usable, slope, one)
        average = xp.where(usable, ema(xp, hyper["beta2"], state["rate_avg"], guess), state["rate_avg"])
        estimate = average / cast_like(xp, bias2, param)
        close = xp.abs(estimate - guess) <= cast_like(xp, hyper["tolerance"], param) * xp.abs(guess)
        due = xp.logical_and(xp.logical_and(usable, step > 1), xp.logical_and(close, estimate > 0))
        found = xp.where(due, estimate / xp.where(lr > 0, lr, one), state["sgd_rate"])

        # Before the switch nothing enters the buffer, so that it begins there.
        entering = xp.where(switched, one, xp.zeros_like(one))
        buffer = cast_like(xp, hyper["beta1"], param) * state["momentum_buffer"] + entering * grad
        share = xp.ones_like(hyper["beta1"]) if self.nesterov else 1.0 - hyper["beta1"]
        sgd = lr * state["sgd_rate"] * cast_like(xp, share, param) * buffer
        slots = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "momentum_buffer": buffer}
        return xp.where(switched, sgd, adam), {**slots, "rate_avg": average, "sgd_rate": found}
