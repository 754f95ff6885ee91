"""SGD with a trust ratio for each layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import require
from edgeopt.optimizers.arithmetic.norms import norm, trust_ratio
from edgeopt.optimizers.base import Arrays, Rule, Updated, zeros
from edgeopt.schedules import Schedule

__all__ = ["LARS"]


@dataclass(frozen=True)
class LARS(Rule):
    """LARS (You, Gitman and Ginsburg 2017, arXiv:1708.03888).

    ::

        r = trust_coefficient·‖θ‖ / (‖g‖ + weight_decay·‖θ‖ + eps)
        b ← momentum·b + r·(g + weight_decay·θ)
        θ ← θ - lr·b,  or  lr·(r·(g + weight_decay·θ) + momentum·b) with `nesterov`

    r is 1 where a norm is zero, and min(r/lr, 1) with `trust_clip` (LARC). Slot `momentum_buffer` (b). Momentum and
    weight decay of exactly 0.0 are left out of the graph; `maximize` climbs.

    Semantics of timm with `always_adapt=True`: every tensor is scaled, vectors included.

    Raises:
        ConfigurationError: A number out of its range, or Nesterov without momentum.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay", "momentum"})

    lr: Schedule | float = 1.0
    momentum: float = 0.9
    weight_decay: float = 0.0
    trust_coefficient: float = 1e-3
    eps: float = 1e-8
    nesterov: bool = False
    trust_clip: bool = False
    maximize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(not self.nesterov or self.momentum > 0.0, "nesterov needs a momentum above 0")

    @property
    def elementwise(self) -> bool:
        """The trust ratio is one number for the tensor."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum buffer, if there is momentum."""
        return zeros(param, "momentum_buffer") if self.momentum else {}

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step; see the class for the equations."""
        if self.maximize:
            grad = -grad
        lr = cast_like(xp, hyper["lr"], param)
        weight, slope = norm(xp, param), norm(xp, grad)
        scale = slope + cast_like(xp, hyper["eps"], param)
        if self.weight_decay:
            decay = cast_like(xp, hyper["weight_decay"], param)
            scale, grad = scale + decay * weight, grad + decay * param
        # A zero gradient has no direction to scale, whatever the decay adds to the denominator.
        scale = xp.where(slope > 0, scale, xp.zeros_like(scale))
        ratio = trust_ratio(xp, weight, scale, cast_like(xp, hyper["trust_coefficient"], param))
        if self.trust_clip:
            # Without a rate there is no step, so any finite quotient will do.
            rate = xp.where(lr > 0, lr, xp.ones_like(lr))
            ratio = xp.minimum(ratio / rate, xp.ones_like(ratio))
        grad = ratio * grad
        if not self.momentum:
            return param - lr * grad, {}
        momentum = cast_like(xp, hyper["momentum"], param)
        buffer = momentum * state["momentum_buffer"] + grad
        direction = grad + momentum * buffer if self.nesterov else buffer
        return param - lr * direction, {"momentum_buffer": buffer}
