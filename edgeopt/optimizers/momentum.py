"""Momentum at several time scales."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import reduce

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction, require
from edgeopt.optimizers.base import Arrays, Updated
from edgeopt.optimizers.descent import Descent

__all__ = ["AggMo"]


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

    betas: tuple[float, ...] = (0.0, 0.9, 0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(isinstance(self.betas, tuple) and len(self.betas) > 0, f"betas must be a tuple, got {self.betas!r}")
        for beta in self.betas:
            fraction("betas", beta)

    def slots(self) -> tuple[str, ...]:
        """Return the buffers of the betas above zero."""
        return tuple(f"momentum_buffer_{place}" for place, beta in enumerate(self.betas) if beta)

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        slots = {slot: self.betas[int(slot.rpartition("_")[2])] * state[slot] + grad for slot in self.slots()}
        plain = [grad] * self.betas.count(0.0)
        total = reduce(operator.add, [*slots.values(), *plain])
        return cast_like(xp, hyper["lr"] / len(self.betas), param) * total, slots
