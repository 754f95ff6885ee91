"""What every update rule provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

import numpy as np

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, fraction
from edgeopt.schedules import Schedule, as_schedule
from edgeopt.schedules.base import numbers, static

__all__ = ["Arrays", "Optimizer", "Rule", "Updated", "static"]

#: Arrays by name: the slots of a parameter, or the hyperparameters.
Arrays: TypeAlias = Mapping[str, Array]

#: The next parameter and the next value of every slot.
Updated: TypeAlias = tuple[Array, dict[str, Array]]


class Optimizer(ABC):
    """Updates each parameter on its own, from its gradient and its slots.

    Numbers become inputs of the exported graph, with the fields as their defaults, so that a device can change them.
    Some fields are static instead, because they decide which slots and nodes exist.
    """

    @property
    @abstractmethod
    def schedule(self) -> Schedule:
        """The learning rate as a schedule; it owns the hyperparameters of the rate."""

    @property
    def elementwise(self) -> bool:
        """Whether each element is updated on its own, so that parameters may be joined and updated together."""
        return True

    def slots(self) -> tuple[str, ...]:
        """Names of the state tensors kept for each parameter, in a fixed order."""
        return ()

    def init(self, slot: str, param: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the first value of a slot: zeros in the shape and dtype of the parameter unless a rule says more."""
        return np.zeros_like(param)

    @abstractmethod
    def hyperparameters(self) -> dict[str, float]:
        """Names and default values of the rule's own numbers. The learning rate belongs to the schedule."""

    @abstractmethod
    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the next parameter and the next value of every slot.

        `hyper` holds the rule's hyperparameters and `"lr"`, the schedule's value at this step, as 0-d float64 arrays.
        `step` is a 0-d int64 array and is 1 at the first update.
        """


@dataclass(frozen=True)
class Rule(Optimizer):
    """An update rule of its own, with a learning rate.

    A rule computes in the dtype of the parameter it is given. Its slots have that dtype, except for scalars that follow
    from the step and the learning rate alone, which are float64.

    Fields annotated `float` are the rule's numbers. They must be finite and at least 0; those called `beta…` are rates
    of moving averages and must be below 1. Static are all other fields, numbers made with `static`, and numbers that
    are exactly 0.0 where the rule says that this switches a term off.

    Raises:
        ConfigurationError: A number out of its range.
    """

    #: Names of numbers that are left out of the graph, together with their term, where they are exactly 0.0.
    optional: ClassVar[frozenset[str]] = frozenset()

    lr: Schedule | float = 1e-3

    def __post_init__(self) -> None:
        as_schedule(self.lr)  # checks a plain number
        for number in fields(self):
            if number.type == "float":
                value = getattr(self, number.name)
                fraction(number.name, value) if number.name.startswith("beta") else at_least(number.name, value, 0.0)

    @property
    def schedule(self) -> Schedule:
        """The learning rate as a schedule; it owns the hyperparameters of the rate."""
        return as_schedule(self.lr)

    def hyperparameters(self) -> dict[str, float]:
        """Names and default values of the rule's own numbers, without those that are switched off."""
        return {name: value for name, value in numbers(self).items() if value or name not in self.optional}
