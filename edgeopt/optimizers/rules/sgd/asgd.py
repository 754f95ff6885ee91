"""Averaged stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Descent
from edgeopt.schedules import Schedule

__all__ = ["ASGD"]


@dataclass(frozen=True)
class ASGD(Descent):
    """Averaged stochastic gradient descent (Polyak and Juditsky 1992).

    ::

        η = lr/(1 + lambd·lr·(t-1))^alpha
        θ ← θ·(1 - lambd·η) - η·g
        a ← a + (θ - a)/max(1, t-1-t0)

    Slot `ax` is the average a; the parameter itself is not averaged. Until step t0 + 2 the average is the parameter.

    Semantics and defaults of `torch.optim.ASGD`, which keeps η in float32 and at each step derives the next one from
    the learning rate of that step; here η is exact, and follows a schedule at once.
    """

    lr: Schedule | float = 1e-2
    lambd: float = 1e-4
    alpha: float = 0.75
    t0: float = 1e6

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the average."""
        return zeros(param, "ax")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        done = xp.astype(step, xp.float64) - 1.0
        eta = hyper["lr"] / (1.0 + hyper["lambd"] * hyper["lr"] * done) ** hyper["alpha"]
        share = 1.0 / xp.maximum(done - hyper["t0"], xp.asarray(1.0, dtype=xp.float64))
        delta = cast_like(xp, hyper["lambd"] * eta, param) * param + cast_like(xp, eta, param) * grad
        average = state["ax"] + cast_like(xp, share, param) * ((param - delta) - state["ax"])
        return delta, {"ax": average}
