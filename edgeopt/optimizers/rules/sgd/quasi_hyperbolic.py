"""Averages of the gradient and its average: quasi-hyperbolic momentum and Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.norms import finite_square
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent

__all__ = ["QHM", "QHAdam"]


@dataclass(frozen=True)
class QHM(Descent):
    """Quasi-hyperbolic momentum (Ma and Yarats, ICLR 2019, arXiv:1810.06801), with the paper's defaults.

    ::

        m ← β·m + (1 - β)·g
        θ ← θ - lr·((1 - nu)·g + nu·m)

    Slot `momentum_buffer` is m.

    Semantics of pytorch_optimizer, where weight decay acts beside the gradient.
    """

    beta: float = 0.999
    nu: float = 0.7
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("nu", self.nu, closed=True)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum buffer."""
        return zeros(param, "momentum_buffer")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        momentum = ema(xp, hyper["beta"], state["momentum_buffer"], grad)
        lr, nu = hyper["lr"], hyper["nu"]
        delta = cast_like(xp, lr * (1.0 - nu), param) * grad + cast_like(xp, lr * nu, param) * momentum
        return delta, {"momentum_buffer": momentum}


@dataclass(frozen=True)
class QHAdam(Descent):
    """Quasi-hyperbolic Adam (Ma and Yarats, ICLR 2019, arXiv:1810.06801), with the paper's defaults.

    ::

        m ← the mean of all g, weighted by β₁ to the power of their age
        v ← the mean of all g², weighted by β₂ to the power of their age
        θ ← θ - lr·((1 - nu1)·g + nu1·m) / (√((1 - nu2)·g² + nu2·v) + eps)

    Slots `exp_avg` (m) and `exp_avg_sq` (v). Both are means at every step, so there is no bias to correct.
    Squares beyond 2⁻³² of the largest finite number count as that number.

    Semantics of pytorch_optimizer, where weight decay acts beside the gradient.
    """

    beta1: float = 0.995
    beta2: float = 0.999
    nu1: float = 0.7
    nu2: float = 1.0
    eps: float = 1e-8
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("nu1", self.nu1, closed=True)
        fraction("nu2", self.nu2, closed=True)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the two means."""
        return zeros(param, "exp_avg", "exp_avg_sq")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        square = finite_square(xp, grad)
        # A running mean is a moving average whose beta is what the newest weight leaves over.
        exp_avg = ema(xp, self._rest(xp, hyper["beta1"], step), state["exp_avg"], grad)
        exp_avg_sq = ema(xp, self._rest(xp, hyper["beta2"], step), state["exp_avg_sq"], square)
        numerator = ema(xp, hyper["nu1"], exp_avg, grad)
        variance = ema(xp, hyper["nu2"], exp_avg_sq, square)
        denominator = xp.sqrt(variance) + cast_like(xp, hyper["eps"], param)
        slots = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
        return cast_like(xp, hyper["lr"], param) * numerator / denominator, slots

    @staticmethod
    def _rest(xp: Namespace, beta: Array, step: Array) -> Array:
        """The share of the older gradients in the mean of t of them."""
        return 1.0 - (1.0 - beta) / bias_correction(xp, beta, step)
