"""Gradients divided by their running root mean square."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.arithmetic.norms import finite_square
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Descent
from edgeopt.schedules import Schedule

__all__ = ["RMSprop"]


@dataclass(frozen=True)
class RMSprop(Descent):
    """RMSprop (Hinton 2012, lecture 6e of the course on neural networks).

    ::

        v ← alpha·v + (1 - alpha)·g²
        c ← alpha·c + (1 - alpha)·g                  with `centered`, which puts v - c² in the place of v below
        b ← momentum·b + g/(√v + eps)
        θ ← θ - lr·b

    Slots `square_avg` (v), with `centered` `grad_avg` (c), and with momentum `momentum_buffer` (b). A momentum of
    exactly 0.0 is left out of the graph. `eps_in_root` divides by √(v + eps) instead, as Keras and optax do.

    Semantics and defaults of `torch.optim.RMSprop`, except that a centered variance below zero, which rounding can
    cause, counts as zero instead of becoming NaN. A c² beyond 2⁻³² of the largest finite number counts as that number.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay", "momentum"})

    lr: Schedule | float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False
    eps_in_root: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("alpha", self.alpha)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the averages, and for the buffer if there is momentum."""
        averages = ("square_avg", "grad_avg") if self.centered else ("square_avg",)
        return zeros(param, *averages, *(("momentum_buffer",) if self.momentum else ()))

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        slots = {"square_avg": ema(xp, hyper["alpha"], state["square_avg"], grad * grad)}
        variance = slots["square_avg"]
        if self.centered:
            slots["grad_avg"] = ema(xp, hyper["alpha"], state["grad_avg"], grad)
            # Limited, because from an infinite square an infinite one would leave NaN.
            square = finite_square(xp, slots["grad_avg"])
            variance = xp.maximum(variance - square, xp.asarray(0.0, dtype=param.dtype))
        eps = cast_like(xp, hyper["eps"], param)
        denominator = xp.sqrt(variance + eps) if self.eps_in_root else xp.sqrt(variance) + eps
        lr = cast_like(xp, hyper["lr"], param)
        if not self.momentum:
            return lr * grad / denominator, slots
        buffer = cast_like(xp, hyper["momentum"], param) * state["momentum_buffer"] + grad / denominator
        return lr * buffer, {**slots, "momentum_buffer": buffer}
