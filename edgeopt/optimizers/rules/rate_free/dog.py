"""Distance over gradients: SGD that finds its own learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import positive
from edgeopt.optimizers.arithmetic.distance import group_norm
from edgeopt.optimizers.base import Arrays, Collective, GroupArrays, Rule, UpdatedAll, static
from edgeopt.schedules import Schedule

__all__ = ["DoG"]


@dataclass(frozen=True)
class DoG(Collective, Rule):
    """DoG (Ivgi, Hinder and Carmon, ICML 2023, arXiv:2302.12022).

    With norms over all parameters of a group::

        r ← max(r, ‖θ - θ₀‖)
        G ← G + ‖g‖²
        θ ← θ - lr·r/√(G + eps)·g

    r begins as reps_rel·(1 + ‖θ₀‖). `lr` is a factor, 1 by theory. Slots `initial_param` (θ₀) and, shared,
    `max_distance` (r) and `sum_sq_grad` (G). The weight decay is added to the gradient; one of exactly 0.0 is left out
    of the graph. `maximize` climbs. The paper evaluates an average of the iterates, which `Averaged` keeps.

    Semantics and defaults of `optax.contrib.dog`.

    Raises:
        ConfigurationError: A number out of its range.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay"})

    lr: Schedule | float = 1.0
    reps_rel: float = static(1e-6)
    eps: float = 1e-8
    weight_decay: float = 0.0
    maximize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("reps_rel", self.reps_rel)
        positive("eps", self.eps)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the parameter."""
        return {"initial_param": param.copy()}

    def init_shared(self, params: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the first distance, and zero for the sum."""
        square = sum(float(np.sum(np.square(param, dtype=np.float64))) for param in params.values())
        return {"max_distance": np.asarray(self.reps_rel * (1.0 + square**0.5)), "sum_sq_grad": np.zeros(())}

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take one step; see the class for the equations."""
        params, grads, states, shared = group
        slopes = {name: -grad if self.maximize else grad for name, grad in grads.items()}
        if self.weight_decay:
            decay = hyper["weight_decay"]
            slopes = {name: slope + cast_like(xp, decay, slope) * params[name] for name, slope in slopes.items()}
        moves = [param - states[name]["initial_param"] for name, param in params.items()]
        distance = xp.maximum(shared["max_distance"], group_norm(xp, moves))
        square = shared["sum_sq_grad"] + group_norm(xp, list(slopes.values())) ** 2.0
        rate = hyper["lr"] * distance / xp.sqrt(square + hyper["eps"])
        return (
            {name: param - cast_like(xp, rate, param) * slopes[name] for name, param in params.items()},
            {name: {"initial_param": states[name]["initial_param"]} for name in params},
            {"max_distance": distance, "sum_sq_grad": square},
        )
