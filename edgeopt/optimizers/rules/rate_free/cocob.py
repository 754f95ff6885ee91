"""Continuous coin betting: descent without a learning rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import positive
from edgeopt.optimizers.base import Arrays, Updated, static, zeros
from edgeopt.optimizers.rules.descent import Descent
from edgeopt.schedules import Schedule

__all__ = ["COCOB"]


@dataclass(frozen=True)
class COCOB(Descent):
    """COCOB-Backprop (Orabona and Tommasi, NeurIPS 2017, arXiv:1705.07795), which bets on each coordinate.

    The outcomes of the coin are the gradients, here times lr, which may stay at 1::

        g ← lr·g
        L ← max(L, |g|)
        G ← G + |g|
        R ← max(R - g·(θ - θ₀), 0)
        C ← C - g
        θ ← θ₀ + C/max(G + L, alpha·L)·(1 + R/L)

    Slots `initial_param` (θ₀), `sum_neg_grad` (C), `max_abs_grad` (L), which begins as `eps`, `sum_abs_grad` (G) and
    `reward` (R). A constant lr changes nothing, once all gradients times lr are above eps.

    Semantics and defaults of `optax.contrib.cocob`.
    """

    lr: Schedule | float = 1.0
    alpha: float = 100.0
    eps: float = static(1e-8)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("eps", self.eps)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the parameter, eps for the largest gradient, and zeros."""
        largest = np.full_like(param, self.eps)
        return {
            "initial_param": param.copy(),
            **zeros(param, "sum_neg_grad"),
            "max_abs_grad": largest,
            **zeros(param, "sum_abs_grad", "reward"),
        }

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        start, grad = state["initial_param"], cast_like(xp, hyper["lr"], param) * grad
        size = xp.abs(grad)
        # eps is what the slot begins with, which in float16 is 0.
        largest = xp.maximum(xp.maximum(state["max_abs_grad"], size), xp.asarray(self.eps, dtype=param.dtype))
        summed = state["sum_abs_grad"] + size
        reward = xp.maximum(state["reward"] - grad * (param - start), xp.zeros_like(param))
        bet = state["sum_neg_grad"] - grad
        # Divided by L before, for alpha·L might overflow.
        fraction = bet / largest / xp.maximum(summed / largest + 1.0, cast_like(xp, hyper["alpha"], param))
        slots = {
            "initial_param": start,
            "sum_neg_grad": bet,
            "max_abs_grad": largest,
            "sum_abs_grad": summed,
            "reward": reward,
        }
        return param - (start + fraction * (1.0 + reward / largest)), slots
