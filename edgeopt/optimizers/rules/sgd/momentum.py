"""Accelerated gradient descent: momentum at several time scales, and Nesterov's sequences."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction, positive, require
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Descent

__all__ = ["FISTA", "AccSGD", "AggMo"]


@dataclass(frozen=True)
class AggMo(Descent):
    """Aggregated momentum (Lucas et al., ICLR 2019, arXiv:1804.00325).

    With K = the number of `betas`, and for each of them::

        bᵢ ← betaᵢ·bᵢ + g
        θ  ← θ - lr/K · Σ bᵢ

    One slot for each beta above zero: `momentum_buffer_1` and so on, numbered by its place. The betas are static,
    because they decide how many slots there are.

    Semantics of torch_optimizer and pytorch_optimizer.

    Raises:
        ConfigurationError: No betas, or one outside [0, 1).
    """

    betas: Sequence[float] = (0.0, 0.9, 0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(isinstance(self.betas, tuple) and len(self.betas) > 0, f"betas must be a tuple, got {self.betas!r}")
        for beta in self.betas:
            fraction("betas", beta)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the buffers of the betas above zero."""
        return zeros(param, *(f"momentum_buffer_{place}" for place, beta in enumerate(self.betas) if beta))

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        slots = {
            f"momentum_buffer_{place}": beta * state[f"momentum_buffer_{place}"] + grad
            for place, beta in enumerate(self.betas)
            if beta
        }
        plain = [grad] * self.betas.count(0.0)
        total = reduce(operator.add, [*slots.values(), *plain])
        return cast_like(xp, hyper["lr"] / len(self.betas), param) * total, slots


@dataclass(frozen=True)
class AccSGD(Descent):
    """Accelerated SGD (Kidambi et al., ICLR 2018, arXiv:1803.05591).

    With β = xi·constant²/kappa and z = constant/(constant + β)::

        b ← b + β·(θ - b - lr·kappa/constant·g)
        θ ← z·(θ - lr·g) + (1 - z)·b

    `kappa` is the long step relative to the learning rate, `xi` the statistical advantage, at most √kappa. Slot
    `momentum_buffer` (b) begins as the parameter.

    Semantics and defaults of the authors' code, torch_optimizer and pytorch_optimizer.

    Raises:
        ConfigurationError: A number out of its range.
    """

    # The buffer is a second copy of the parameter.
    exact_slots: ClassVar[frozenset[str]] = frozenset({"momentum_buffer"})

    kappa: float = 1000.0
    xi: float = 10.0
    constant: float = 0.7

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("kappa", self.kappa)
        positive("constant", self.constant)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the parameter for the buffer."""
        return {"momentum_buffer": param.copy()}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        lr, kappa, constant = hyper["lr"], hyper["kappa"], hyper["constant"]
        beta = hyper["xi"] * constant * constant / kappa
        zeta = constant / (constant + beta)
        long_step = cast_like(xp, beta * lr * kappa / constant, param)
        buffer = state["momentum_buffer"]
        buffer = buffer + cast_like(xp, beta, param) * (param - buffer) - long_step * grad
        delta = cast_like(xp, zeta * lr, param) * grad + cast_like(xp, 1.0 - zeta, param) * (param - buffer)
        return delta, {"momentum_buffer": buffer}


@dataclass(frozen=True)
class FISTA(Descent):
    """Nesterov's accelerated gradient with the momentum of FISTA (Beck and Teboulle 2009), without a proximal step.

    The parameter is the point y at which gradients are taken::

        x' = y - lr·g
        t' = (1 + √(1 + 4·t²))/2
        y ← x' + (t - 1)/t'·(x' - x)
        x ← x',  t ← t'

    Slots `previous_param` (x), which begins as the parameter, and the float64 scalar `momentum_count` (t), which begins
    at 1. For smooth convex functions and a rate of one over their curvature.

    Semantics of the paper, for a function whose second part is zero.
    """

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the parameter for the last x, and 1 for t."""
        return {"previous_param": param.copy(), "momentum_count": np.ones((), np.float64)}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        old = state["momentum_count"]
        count = 0.5 + 0.5 * xp.sqrt(1.0 + 4.0 * old * old)
        move = cast_like(xp, hyper["lr"], param) * grad
        current = param - move
        delta = move - cast_like(xp, (old - 1.0) / count, param) * (current - state["previous_param"])
        return delta, {"previous_param": current, "momentum_count": count}
