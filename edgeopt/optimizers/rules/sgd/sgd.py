"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import require
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent

__all__ = ["SGD", "SGDW"]


@dataclass(frozen=True)
class SGD(Descent):
    """Stochastic gradient descent, optionally with momentum (Polyak 1964) or Nesterov's (Sutskever et al. 2013).

    ::

        b ← momentum·b + (1 - dampening)·g      the first b is the plain g, without dampening
        u = b,  or  g + momentum·b  with nesterov
        θ ← θ - lr·u

    Slot `momentum_buffer` is b. Momentum and dampening of exactly 0.0 are left out of the graph, with their
    hyperparameters, and without momentum there is no slot.

    Semantics and defaults of `torch.optim.SGD`; the learning rate is outside the buffer.

    Raises:
        ConfigurationError: A number out of its range, or Nesterov where it has no meaning.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay", "momentum", "dampening"})

    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            not self.nesterov or (self.momentum > 0.0 and self.dampening == 0.0),
            "nesterov needs a momentum above 0 and no dampening",
        )

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum buffer, if there is momentum."""
        return zeros(param, "momentum_buffer") if self.momentum else {}

    def hyperparameters(self) -> dict[str, float]:
        """Return the numbers that are not switched off. Without a buffer there is nothing to dampen."""
        numbers = super().hyperparameters()
        return numbers if self.momentum else {name: numbers[name] for name in numbers if name != "dampening"}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        lr = cast_like(xp, hyper["lr"], param)
        if not self.momentum:
            return lr * grad, {}

        momentum = cast_like(xp, hyper["momentum"], param)
        fresh = grad
        if self.dampening:
            # The buffer starts at zero, so a factor of 1 at the first step makes it the plain gradient.
            factor = xp.where(step == 1, 1.0, 1.0 - hyper["dampening"])
            fresh = cast_like(xp, factor, param) * grad
        buffer = momentum * state["momentum_buffer"] + fresh
        direction = grad + momentum * buffer if self.nesterov else buffer
        return lr * direction, {"momentum_buffer": buffer}


@dataclass(frozen=True)
class SGDW(SGD):
    """SGD with decoupled weight decay (Loshchilov and Hutter, ICLR 2019, arXiv:1711.05101, algorithm 1).

    As `SGD`, except that the decay shrinks the parameter before the step and never enters the buffer::

        θ ← θ·(1 - lr·weight_decay)

    Semantics of `SGDW` in pytorch_optimizer; the decay is 0.01 as in `AdamW`.
    """

    weight_decay: float = 1e-2
    decay: Decay = "before"
