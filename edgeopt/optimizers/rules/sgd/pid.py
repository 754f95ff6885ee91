"""Momentum as a controller sees it: proportional, integral and derivative parts of the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Descent
from edgeopt.schedules import Schedule

__all__ = ["PID"]


@dataclass(frozen=True)
class PID(Descent):
    """PID (An et al., CVPR 2018, "A PID Controller Approach for Stochastic Optimization of Deep Networks").

    ::

        i ← momentum·i + (1 - dampening)·g
        d ← momentum·d + (1 - momentum)·(g - g₋₁)    0 at the first step
        θ ← θ - lr·(g + integral·i + derivative·d)

    Slots `grad_buffer` (g₋₁), `i_buffer` (i) and `d_buffer` (d).

    Semantics and defaults of pytorch_optimizer, with the decay in the gradient. The authors' code and torch_optimizer
    do not dampen the first step, and take g₋₁ for 0 at the second.
    """

    lr: Schedule | float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    integral: float = 5.0
    derivative: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("momentum", self.momentum)
        fraction("dampening", self.dampening, closed=True)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the last gradient and the two parts."""
        return zeros(param, "grad_buffer", "i_buffer", "d_buffer")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        momentum, entering = (cast_like(xp, x, param) for x in (hyper["momentum"], 1.0 - hyper["dampening"]))
        integral = momentum * state["i_buffer"] + entering * grad
        # At the first step the difference counts nothing: both weights are 0.
        weight = xp.where(step > 1, 1.0 - hyper["momentum"], xp.zeros_like(hyper["momentum"]))
        change = cast_like(xp, weight, param) * (grad - state["grad_buffer"])
        derivative = momentum * state["d_buffer"] + change
        control = (
            grad
            + cast_like(xp, hyper["integral"], param) * integral
            + cast_like(xp, hyper["derivative"], param) * derivative
        )
        slots = {"grad_buffer": grad, "i_buffer": integral, "d_buffer": derivative}
        return cast_like(xp, hyper["lr"], param) * control, slots
