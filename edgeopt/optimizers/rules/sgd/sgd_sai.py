"""SGD whose rates are set once, by how noisy the first gradient of each tensor is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.arithmetic.norms import count
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent
from edgeopt.schedules import Schedule

__all__ = ["SGDSaI"]


@dataclass(frozen=True)
class SGDSaI(Descent):
    """SGD-SaI (Xu et al. 2024, arXiv:2412.11768): learning-rate scaling at initialisation.

    ::

        a = ‖g‖/(deviation(g) + eps)   of the first gradient that is not zero, and 1 for vectors and scalars
        m ← momentum·m + (1 - momentum)·g
        θ ← θ - lr·a·m

    The standard deviation is that of the tensor, with n - 1. Slots `momentum_buffer` (m) and `gsnr` (a; 0 before there
    is a gradient). A momentum of exactly 0.0 leaves g, without a slot.

    Semantics and defaults of pytorch_optimizer for matrices. It takes a = ‖g‖ where there is one row or one dimension,
    so that the step grows with the square of the gradient; here those are left as SGD has them.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay", "momentum"})

    lr: Schedule | float = 1e-2
    momentum: float = 0.9
    eps: float = 1e-8
    weight_decay: float = 1e-2
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("momentum", self.momentum)

    @property
    def elementwise(self) -> bool:
        """The scaling is that of the tensor."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum, if there is any, and for the scaling."""
        slots = zeros(param, "momentum_buffer") if self.momentum else {}
        return {**slots, "gsnr": np.zeros((), param.dtype)}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        one, scaling = xp.ones_like(state["gsnr"]), state["gsnr"]
        first = one
        if param.ndim > 1 and param.shape[0] > 1:
            # The quotient does not depend on the size of the gradient: divided by it, no square overflows.
            peak = xp.max(xp.abs(grad))
            some = peak > 0
            scaled = grad / xp.where(some, peak, one)
            centred = scaled - xp.mean(scaled)
            deviation = xp.sqrt(xp.sum(centred * centred) / (count(xp, scaled) - 1.0))
            norm = xp.sqrt(xp.sum(scaled * scaled))
            eps = cast_like(xp, hyper["eps"], param) / xp.where(some, peak, one)
            first = xp.where(some, norm / xp.where(some, deviation + eps, one), xp.zeros_like(one))
        scaling = xp.where(scaling > 0, scaling, first)
        rate = cast_like(xp, hyper["lr"], param) * scaling
        if not self.momentum:
            return rate * grad, {"gsnr": scaling}
        momentum = ema(xp, hyper["momentum"], state["momentum_buffer"], grad)
        return rate * momentum, {"momentum_buffer": momentum, "gsnr": scaling}
