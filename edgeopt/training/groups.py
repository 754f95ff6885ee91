"""Which rule updates which parameters, what it keeps for them, and what its numbers are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.optimizers import Curvature, Ingredient, Optimizer
from edgeopt_runtime.manifest import Hyperparameter

__all__ = ["UpdateGroup"]

NumpyArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class UpdateGroup:
    """Parameters that one rule updates together.

    Attributes:
        name: Part of the names of what belongs to the group alone; empty for the group of all that no other matches.
        rule: The update rule.
        slots: The first values of the slots, by parameter.
        shared: The first values of the slots that the parameters share.
        ingredients: What an update needs beside the gradient, by parameter.
        hyperparameters: The full name of each of the rule's numbers.
        schedule: The full name of each number of the rule's schedule.
        multiplier: The full name of the factor of the learning rate, where there is one.
        values: The first values of all these numbers by full name.
    """

    name: str
    rule: Optimizer
    slots: Mapping[str, Mapping[str, NumpyArray]]
    shared: Mapping[str, NumpyArray]
    ingredients: Mapping[str, Mapping[str, Ingredient]]
    hyperparameters: Mapping[str, str]
    schedule: Mapping[str, str]
    multiplier: str | None
    values: Mapping[str, Hyperparameter]

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(self.slots)

    def shared_name(self, slot: str) -> str:
        """The name of the state tensor of a shared slot."""
        return f"optimizer.{self.name}.{slot}" if self.name else f"optimizer.{slot}"

    def curvatures(self) -> Iterator[tuple[str, str, Curvature]]:
        """Parameter, name and kind of each ingredient that takes further passes through the model."""
        for parameter, needed in self.ingredients.items():
            for name, ingredient in needed.items():
                if isinstance(ingredient, Curvature):
                    yield parameter, name, ingredient


def only_group(rule: Optimizer, parameters: Mapping[str, NumpyArray]) -> UpdateGroup:
    """All parameters under one rule."""
    own = {name: f"optimizer.{name}" for name in rule.hyperparameters()}
    of_schedule = {name: f"schedule.{name}" for name in rule.schedule.hyperparameters()}
    values = {
        **_described(of_schedule, rule.schedule.hyperparameters(), rule.schedule),
        **_described(own, rule.hyperparameters(), rule),
    }
    return UpdateGroup(
        name="",
        rule=rule,
        slots={name: rule.init(parameter) for name, parameter in parameters.items()},
        shared=rule.init_shared(parameters),
        ingredients={name: rule.ingredients(parameter) for name, parameter in parameters.items()},
        hyperparameters=own,
        schedule=of_schedule,
        multiplier=None,
        values=values,
    )


def _described(names: Mapping[str, str], values: Mapping[str, float], owner: object) -> dict[str, Hyperparameter]:
    """Each number with the class to read about it."""
    return {
        full: Hyperparameter(full, "float64", values[name], f"{name} of {type(owner).__name__}")
        for name, full in names.items()
    }
