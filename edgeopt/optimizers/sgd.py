"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, require
from edgeopt.optimizers.base import Optimizer

__all__ = ["SGD"]


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent, optionally with momentum (Polyak 1964) or Nesterov's (Sutskever et al. 2013).

    ::

        g ← g + weight_decay·θ
        b ← momentum·b + (1 - dampening)·g      the first b is the plain g, without dampening
        u = b,  or  g + momentum·b  with nesterov
        θ ← θ - lr·u

    Slot `momentum_buffer` is b. Momentum, dampening and weight decay of exactly 0.0 are left out of the graph, with
    their hyperparameters, and without momentum there is no slot. `maximize` climbs instead of descending.

    Semantics and defaults of `torch.optim.SGD`; the learning rate is outside the buffer.

    Raises:
        ConfigurationError: A negative number, or dampening or Nesterov where it has no meaning.
    """

    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    maximize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("momentum", self.momentum, 0.0)
        at_least("weight_decay", self.weight_decay, 0.0)
        at_least("dampening", self.dampening, 0.0)
        require(
            not self.nesterov or (self.momentum > 0.0 and self.dampening == 0.0),
            "nesterov needs a momentum above 0 and no dampening",
        )

    def slots(self) -> tuple[str, ...]:
        """Return the momentum buffer, if there is momentum."""
        return ("momentum_buffer",) if self.momentum else ()

    def hyperparameters(self) -> dict[str, float]:
        """Return the numbers that are not switched off."""
        numbers = {"weight_decay": self.weight_decay}
        if self.momentum:
            numbers |= {"momentum": self.momentum, "dampening": self.dampening}
        return {name: float(value) for name, value in numbers.items() if value}

    def update(
        self,
        xp: Namespace,
        param: Array,
        grad: Array,
        state: Mapping[str, Array],
        hyper: Mapping[str, Array],
        step: Array,
    ) -> tuple[Array, dict[str, Array]]:
        """Take one step; see the class for the equations."""
        if self.maximize:
            grad = -grad
        if self.weight_decay:
            grad = grad + cast_like(xp, hyper["weight_decay"], param) * param
        lr = cast_like(xp, hyper["lr"], param)
        if not self.momentum:
            return param - lr * grad, {}

        momentum = cast_like(xp, hyper["momentum"], param)
        fresh = grad
        if self.dampening:
            # The buffer starts at zero, so a factor of 1 at the first step makes it the plain gradient.
            factor = xp.where(step == 1, 1.0, 1.0 - hyper["dampening"])
            fresh = cast_like(xp, factor, param) * grad
        buffer = momentum * state["momentum_buffer"] + fresh
        direction = grad + momentum * buffer if self.nesterov else buffer
        return param - lr * direction, {"momentum_buffer": buffer}
