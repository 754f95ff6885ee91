"""Resilient backpropagation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.base import Arrays, Rule, Updated, zeros
from edgeopt.schedules import Schedule

__all__ = ["Rprop"]


@dataclass(frozen=True)
class Rprop(Rule):
    """Resilient backpropagation (Riedmiller and Braun 1993), for gradients of the whole data set.

    ::

        s ← clip(s·eta_plus,  step_min, step_max)           where g and the last g agree in sign
        s ← clip(s·eta_minus, step_min, step_max), g ← 0    where they differ
        θ ← θ - s·sign(g)

    As in torch, `etas` can be given in place of the first two numbers, and `step_sizes` in place of the others. Every s
    begins at the learning rate, which afterwards has no effect. Slots `prev` (the last g) and `step_size` (s).
    `maximize` climbs.

    Semantics and defaults of `torch.optim.Rprop`, except that signs are compared rather than the product of the two
    gradients, which underflows when both are tiny.
    """

    combined: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "etas": ("eta_minus", "eta_plus"),
        "step_sizes": ("step_min", "step_max"),
    }

    lr: Schedule | float = 1e-2
    eta_minus: float = 0.5
    eta_plus: float = 1.2
    step_min: float = 1e-6
    step_max: float = 50.0
    maximize: bool = False

    if TYPE_CHECKING:
        etas: Sequence[float] | None = field(default=None, kw_only=True)
        step_sizes: Sequence[float] | None = field(default=None, kw_only=True)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the last gradient and the step sizes."""
        return zeros(param, "prev", "step_size")

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step; see the class for the equations."""
        if self.maximize:
            grad = -grad

        def scalar(value: Array) -> Array:
            return cast_like(xp, value, param)

        agreement = xp.sign(grad) * xp.sign(state["prev"])
        grow, keep, shrink = (scalar(hyper["eta_plus"]), scalar(xp.ones_like(hyper["lr"])), scalar(hyper["eta_minus"]))
        factor = xp.where(agreement > 0, grow, xp.where(agreement < 0, shrink, keep))
        size = xp.where(step == 1, scalar(hyper["lr"]), state["step_size"])
        size = xp.minimum(xp.maximum(size * factor, scalar(hyper["step_min"])), scalar(hyper["step_max"]))
        grad = xp.where(agreement < 0, xp.zeros_like(grad), grad)
        return param - size * xp.sign(grad), {"prev": grad, "step_size": size}
