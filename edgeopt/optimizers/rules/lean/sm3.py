"""Second moments covered by one vector for each dimension: SM3."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.arithmetic.norms import finite_square
from edgeopt.optimizers.base import Arrays, Updated
from edgeopt.optimizers.rules.descent import Descent
from edgeopt.schedules import Schedule

__all__ = ["SM3"]


@dataclass(frozen=True)
class SM3(Descent):
    """SM3 (Anil et al., NeurIPS 2019, arXiv:1901.11150), with one accumulator for each index of each dimension.

    ::

        v = min(a₀, a₁, …) + g²                     with `beta` β·min(a₀, a₁, …) + (1 - β)·g²
        aᵢ ← max of v over all dimensions but i     with `beta` max(aᵢ, that)
        u = g/√(v + eps)
        θ ← θ - lr·u                                with `momentum` lr·m, m ← momentum·m + (1 - momentum)·u

    Slots `accumulator_0` (a₀), `accumulator_1` (a₁) and so on, of length 1 in the other dimensions, and
    `momentum_buffer` (m) with a momentum. A momentum or beta of exactly 0.0 is left out of the graph. Squares beyond
    2⁻³² of the largest finite number count as that number.

    Semantics and defaults of pytorch_optimizer, and of the authors' code for beta = 0.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay", "momentum", "beta"})

    lr: Schedule | float = 0.1
    momentum: float = 0.0
    beta: float = 0.0
    eps: float = 1e-30

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("momentum", self.momentum)

    @property
    def elementwise(self) -> bool:
        """The accumulators are those of the tensor."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the accumulators, one for each dimension, and for the momentum if there is any."""
        slots = {}
        for axis in range(max(param.ndim, 1)):
            shape = tuple(size if place == axis else 1 for place, size in enumerate(param.shape))
            slots[f"accumulator_{axis}"] = np.zeros(shape, param.dtype)
        return {**slots, "momentum_buffer": np.zeros_like(param)} if self.momentum else slots

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        before = [state[f"accumulator_{axis}"] for axis in range(max(param.ndim, 1))]
        cover, square = reduce(xp.minimum, before), finite_square(xp, grad)
        moment = ema(xp, hyper["beta"], cover, square) if self.beta else cover + square
        slots = {}
        for axis, old in enumerate(before):
            others = tuple(place for place in range(param.ndim) if place != axis)
            largest = xp.max(moment, axis=others, keepdims=True) if others else moment
            slots[f"accumulator_{axis}"] = xp.maximum(old, largest) if self.beta else largest
        # Where all gradients were zero the root may be 0.
        root = xp.sqrt(moment + cast_like(xp, hyper["eps"], param))
        update = grad / xp.where(root > 0, root, xp.ones_like(root))
        if self.momentum:
            update = slots["momentum_buffer"] = ema(xp, hyper["momentum"], state["momentum_buffer"], update)
        return cast_like(xp, hyper["lr"], param) * update, slots
