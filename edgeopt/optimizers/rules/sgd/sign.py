"""Steps of one size: the sign of a momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent
from edgeopt.schedules import Schedule

__all__ = ["Lion", "SignSGD", "Tiger"]


@dataclass(frozen=True)
class Lion(Descent):
    """Lion (Chen et al., NeurIPS 2023, arXiv:2302.06675).

    ::

        θ ← θ - lr·sign(β₁·m + (1 - β₁)·g)
        m ← β₂·m + (1 - β₂)·g

    Slot `exp_avg` is m. The sign of 0 is 0.

    Semantics and defaults of lion-pytorch and pytorch_optimizer.
    """

    lr: Schedule | float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.99
    decay: Decay = "before"

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum."""
        return zeros(param, "exp_avg")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        direction = xp.sign(ema(xp, hyper["beta1"], state["exp_avg"], grad))
        return cast_like(xp, hyper["lr"], param) * direction, {
            "exp_avg": ema(xp, hyper["beta2"], state["exp_avg"], grad)
        }


@dataclass(frozen=True)
class SignSGD(Descent):
    """SignSGD, and Signum with momentum (Bernstein et al., ICML 2018, arXiv:1802.04434).

    ::

        m ← momentum·m + (1 - momentum)·g
        θ ← θ - lr·sign(m)

    Slot `momentum_buffer` is m. A momentum of exactly 0.0 leaves sign(g), without a slot. The sign of 0 is 0.

    Semantics and defaults of pytorch_optimizer.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay", "momentum"})

    momentum: float = 0.9
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("momentum", self.momentum)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum, if there is any."""
        return zeros(param, "momentum_buffer") if self.momentum else {}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        lr = cast_like(xp, hyper["lr"], param)
        if not self.momentum:
            return lr * xp.sign(grad), {}
        momentum = ema(xp, hyper["momentum"], state["momentum_buffer"], grad)
        return lr * xp.sign(momentum), {"momentum_buffer": momentum}


@dataclass(frozen=True)
class Tiger(Descent):
    """Tiger (Su 2023, "Tiger: a tight-fisted optimizer"): Lion with one beta.

    ::

        m ← β·m + (1 - β)·g
        θ ← θ - lr·sign(m)

    Slot `exp_avg` is m. Semantics and defaults of pytorch_optimizer.
    """

    beta: float = 0.965
    weight_decay: float = 0.01
    decay: Decay = "before"

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum."""
        return zeros(param, "exp_avg")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        exp_avg = ema(xp, hyper["beta"], state["exp_avg"], grad)
        return cast_like(xp, hyper["lr"], param) * xp.sign(exp_avg), {"exp_avg": exp_avg}
