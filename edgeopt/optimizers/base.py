"""What every update rule provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace
from edgeopt.schedules import Schedule, as_schedule

__all__ = ["Optimizer"]


@dataclass(frozen=True)
class Optimizer(ABC):
    """One update rule, applied to each parameter on its own.

    Numbers become inputs of the exported graph, with the fields as their defaults, so that a device can change them.
    Two kinds of field are static instead, because they decide which slots and nodes exist: flags, and numbers that are
    exactly 0.0 where the rule says that this switches a term off.

    A rule computes in the dtype of the parameter it is given, and its slots have that dtype.
    """

    lr: Schedule | float = 1e-3

    def __post_init__(self) -> None:
        as_schedule(self.lr)  # checks a plain number

    @property
    def schedule(self) -> Schedule:
        """The learning rate as a schedule; it owns the hyperparameters of the rate."""
        return as_schedule(self.lr)

    def slots(self) -> tuple[str, ...]:
        """Names of the state tensors kept for each parameter, in a fixed order."""
        return ()

    def init(self, slot: str, param: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the first value of a slot: zeros in the shape and dtype of the parameter unless a rule says more."""
        return np.zeros_like(param)

    def hyperparameters(self) -> dict[str, float]:
        """Names and default values of the rule's own numbers. The learning rate belongs to the schedule."""
        return {}

    @abstractmethod
    def update(
        self,
        xp: Namespace,
        param: Array,
        grad: Array,
        state: Mapping[str, Array],
        hyper: Mapping[str, Array],
        step: Array,
    ) -> tuple[Array, dict[str, Array]]:
        """Return the next parameter and the next value of every slot.

        `hyper` holds the rule's hyperparameters and `"lr"`, the schedule's value at this step, as 0-d float64 arrays.
        `step` is a 0-d int64 array and is 1 at the first update.
        """
