"""Step sizes from all the gradients so far: Adagrad and Adadelta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.base import Arrays, Updated, static, zeros
from edgeopt.optimizers.rules.descent import Descent
from edgeopt.schedules import Schedule

__all__ = ["Adadelta", "Adagrad"]


@dataclass(frozen=True)
class Adagrad(Descent):
    """Adagrad (Duchi, Hazan and Singer, JMLR 2011).

    ::

        G ← G + g²
        θ ← θ - lr/(1 + lr_decay·(t-1)) · g/(√G + eps)

    Slot `sum` is G and begins at `initial_accumulator_value`. An `lr_decay` of exactly 0.0 is left out of the graph.
    `eps_in_root` divides by √(G + eps) instead, as Keras and optax do.

    Semantics and defaults of `torch.optim.Adagrad`.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay", "lr_decay"})

    lr: Schedule | float = 1e-2
    lr_decay: float = 0.0
    eps: float = 1e-10
    initial_accumulator_value: float = static(0.0)
    eps_in_root: bool = False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the initial value in every element."""
        return {"sum": np.full_like(param, self.initial_accumulator_value)}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        total = state["sum"] + grad * grad
        rate = hyper["lr"]
        if self.lr_decay:
            rate = rate / (1.0 + hyper["lr_decay"] * (xp.astype(step, xp.float64) - 1.0))
        eps = cast_like(xp, hyper["eps"], param)
        denominator = xp.sqrt(total + eps) if self.eps_in_root else xp.sqrt(total) + eps
        return cast_like(xp, rate, param) * grad / denominator, {"sum": total}


@dataclass(frozen=True)
class Adadelta(Descent):
    """Adadelta (Zeiler 2012, arXiv:1212.5701).

    ::

        v ← rho·v + (1 - rho)·g²
        d = √(a + eps)/√(v + eps) · g
        a ← rho·a + (1 - rho)·d²
        θ ← θ - lr·d

    Slots `square_avg` (v) and `acc_delta` (a).

    Semantics and defaults of `torch.optim.Adadelta`, with a learning rate of 1.
    """

    lr: Schedule | float = 1.0
    rho: float = 0.9
    eps: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("rho", self.rho)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the mean squares of gradients and of steps."""
        return zeros(param, "square_avg", "acc_delta")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        eps = cast_like(xp, hyper["eps"], param)
        square_avg = ema(xp, hyper["rho"], state["square_avg"], grad * grad)
        direction = xp.sqrt(state["acc_delta"] + eps) / xp.sqrt(square_avg + eps) * grad
        acc_delta = ema(xp, hyper["rho"], state["acc_delta"], direction * direction)
        return cast_like(xp, hyper["lr"], param) * direction, {"square_avg": square_avg, "acc_delta": acc_delta}
