"""Which rule updates which parameters, what it keeps for them, and what its numbers are called."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from edgeopt.checks import ranges_of
from edgeopt.errors import ParameterPatternError, SignatureError
from edgeopt.optimizers import Group, Ingredient, Measurement, Optimizer, ParameterGroups, QuantizedState, Wrapper
from edgeopt.schedules import Schedule
from edgeopt.training.names import measurement_name, slot_name
from edgeopt.training.updating.blocks import BLOCK_SIZE
from edgeopt.training.updating.units import JOINED_SIZE, Unit, make_units
from edgeopt_runtime.manifest import Hyperparameter

__all__ = ["Need", "UpdateGroup", "no_match", "not_frozen", "resolve"]

NumpyArray = np.ndarray[Any, Any]


class Need(NamedTuple):
    """A measurement that an update needs.

    Attributes:
        owner: The parameter, or the name of the group where the parameters need it together.
        name: Of the ingredient.
        kind: The ingredient.
        members: The parameters.
    """

    owner: str
    name: str
    kind: Measurement
    members: tuple[str, ...]

    @property
    def key(self) -> str:
        """The name of the accumulator."""
        return measurement_name(self.name, self.owner)


@dataclass(frozen=True)
class UpdateGroup:
    """Parameters that one rule updates together.

    Attributes:
        name: Part of the names of what belongs to the group alone; empty for the group of all that no other matches.
        rule: The update rule.
        slots: The first values of the slots, by parameter.
        shared: The first values of the slots that the parameters share.
        ingredients: What an update needs beside the gradient, by parameter.
        shared_ingredients: What it needs for all parameters together.
        units: The parameters as they are updated, one by one or joined.
        hyperparameters: The full name of each of the rule's numbers.
        schedule: The full name of each number of the rule's schedule.
        multiplier: The full name of the factor of the learning rate, where there is one.
        block_size: The elements of a block where large parameters are updated in blocks; 0 for whole parameters.
        values: The first values of all these numbers by full name.
    """

    name: str
    rule: Optimizer
    slots: Mapping[str, Mapping[str, NumpyArray]]
    shared: Mapping[str, NumpyArray]
    ingredients: Mapping[str, Mapping[str, Ingredient]]
    shared_ingredients: Mapping[str, Ingredient]
    units: tuple[Unit, ...]
    hyperparameters: Mapping[str, str]
    schedule: Mapping[str, str]
    multiplier: str | None
    values: Mapping[str, Hyperparameter]
    block_size: int

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(self.slots)

    def shared_name(self, slot: str) -> str:
        """The name of the state tensor of a shared slot."""
        return f"optimizer.{self.name}.{slot}" if self.name else f"optimizer.{slot}"

    def slot_name(self, slot: str, unit: Unit) -> str:
        """The name of the tensor that the graphs read and write for a slot of a unit."""
        # Scalars are the same for all members: the graphs read the first one's, and write all.
        return slot_name(slot, next(iter(unit.members)) if slot in unit.scalars else unit.name)

    def needs(self, unit: Unit) -> tuple[str, ...]:
        """Names of the ingredients of a unit."""
        return tuple(self.ingredients[next(iter(unit.members))])

    def measurements(self) -> Iterator[Need]:
        """Each ingredient that the graphs measure in their batch."""
        for parameter, needed in self.ingredients.items():
            for name, ingredient in needed.items():
                if isinstance(ingredient, Measurement):
                    yield Need(parameter, name, ingredient, (parameter,))
        for name, ingredient in self.shared_ingredients.items():
            if isinstance(ingredient, Measurement):
                yield Need(self.name, name, ingredient, self.members)


def resolve(
    optimizer: ParameterGroups,
    parameters: Mapping[str, NumpyArray],
    joined_size: int = JOINED_SIZE,
    without: Collection[str] = (),
    block_size: int = BLOCK_SIZE,
) -> tuple[UpdateGroup, ...]:
    """Give each parameter to its group, and leave out those that are frozen and groups without parameters.

    The group of the parameters that nothing else matches comes first.

    Args:
        optimizer: Rules and groups.
        parameters: The parameters to train, by name.
        joined_size: The number of elements up to which parameters are joined where a rule allows it.
        without: Parameters that a group may name, but that are not updated; a group may have no others.
        block_size: See `UpdateGroup`.

    Raises:
        ParameterPatternError: A group gets no parameter, or all of them are frozen; or a pattern matches none.
        SignatureError: Numbers of two groups would have one name.
    """
    members = _members(optimizer, parameters)
    for rule in (optimizer.default, *(group.optimizer for group in optimizer.groups)):
        _check_formats(rule, parameters)
    for place, group in enumerate(optimizer.groups):
        _check(group, optimizer.name(place), members[place], parameters)
    updated = {
        place: {name: parameters[name] for name in names if name not in without}
        for place, names in members.items()
        if place is None or not optimizer.groups[place].frozen
    }
    resolved = tuple(
        _update_group(optimizer, place, own, joined_size, block_size) for place, own in updated.items() if own
    )
    if not resolved:
        raise ParameterPatternError("No parameter is trainable: all of them are in frozen groups.")
    numbers: dict[str, Hyperparameter] = {}
    for entry in resolved:
        for full, number in entry.values.items():
            if numbers.setdefault(full, number) != number:
                raise SignatureError(f"Two hyperparameters would be called {full!r}; give the group another name.")
    return resolved


def not_frozen(optimizer: ParameterGroups, parameters: Mapping[str, NumpyArray]) -> tuple[str, ...]:
    """Names of the parameters that are in no frozen group."""
    members = _members(optimizer, parameters)
    frozen = {name for place, group in enumerate(optimizer.groups) if group.frozen for name in members[place]}
    return tuple(name for name in parameters if name not in frozen)


def _members(optimizer: ParameterGroups, parameters: Mapping[str, NumpyArray]) -> dict[int | None, list[str]]:
    """The names of each group's parameters; None stands for the group of those that nothing else matches."""
    members: dict[int | None, list[str]] = {place: [] for place in (None, *range(len(optimizer.groups)))}
    for name, parameter in parameters.items():
        matching = (place for place, group in enumerate(optimizer.groups) if group.matches(name, parameter.ndim))
        members[next(matching, None)].append(name)
    return members


def _check(group: Group, name: str, members: Sequence[str], parameters: Mapping[str, NumpyArray]) -> None:
    for pattern in group.patterns:
        if not any(fnmatch.fnmatchcase(parameter, pattern) for parameter in parameters):
            raise ParameterPatternError(no_match(pattern, list(parameters)))
    if not members:
        raise ParameterPatternError(
            f"The parameter group {name} ({group.parameters!r}, ndim={group.ndim}) is empty: no trained parameter "
            "matches, or earlier groups match all that do."
        )


def _check_formats(rule: Optimizer | None, parameters: Mapping[str, NumpyArray]) -> None:
    """Check that each pattern of formats by parameter names matches something."""
    while isinstance(rule, Wrapper):
        for pattern in rule.state if isinstance(rule, QuantizedState) and isinstance(rule.state, Mapping) else ():
            if not any(fnmatch.fnmatchcase(parameter, pattern) for parameter in parameters):
                raise ParameterPatternError(no_match(pattern, list(parameters)))
        rule = rule.inner


def _update_group(
    optimizer: ParameterGroups,
    place: int | None,
    parameters: Mapping[str, NumpyArray],
    joined_size: int,
    block_size: int,
) -> UpdateGroup:
    default = optimizer.default
    group = Group() if place is None else optimizer.groups[place]
    name = "" if place is None else optimizer.name(place)
    rule, prefix = group.rule(default), f"{name}." if name else ""
    # A group without a rule of its own shares the numbers of the default one, all but those that differ.
    common = default.hyperparameters() if group.optimizer is None else {}
    numbers, of_schedule = rule.hyperparameters(), rule.schedule.hyperparameters()
    own = {
        key: f"optimizer.{key}" if common.get(key) == value else f"optimizer.{prefix}{key}"
        for key, value in numbers.items()
    }
    schedule = {key: f"schedule.{key}" if group.optimizer is None else f"schedule.{prefix}{key}" for key in of_schedule}
    values = {**_described(schedule, of_schedule, rule.schedule), **_described(own, numbers, rule)}
    multiplier = f"optimizer.{name}.lr_multiplier" if name else None
    if multiplier is not None:
        text = f"factor of the learning rate in the group {name}"
        allowed = ranges_of(group, ["lr_multiplier"])["lr_multiplier"]
        values[multiplier] = Hyperparameter(multiplier, "float64", float(group.lr_multiplier), text, allowed)
    own_rules = {key: rule.for_parameter(key) for key in parameters}
    ingredients = {key: own_rules[key].ingredients(parameter) for key, parameter in parameters.items()}
    return UpdateGroup(
        name=name,
        rule=rule,
        slots={key: own_rules[key].init(parameter) for key, parameter in parameters.items()},
        shared=rule.init_shared(parameters),
        ingredients=ingredients,
        shared_ingredients=rule.shared_ingredients(parameters),
        units=make_units(rule, parameters, ingredients, joined_size, f"joined.{name}" if name else "joined"),
        hyperparameters=own,
        schedule=schedule,
        multiplier=multiplier,
        values=values,
        block_size=block_size,
    )


def _described(
    names: Mapping[str, str], values: Mapping[str, float], owner: Optimizer | Schedule
) -> dict[str, Hyperparameter]:
    """Each number with its range, and the class to read about it."""
    ranges = owner.ranges()
    return {
        full: Hyperparameter(full, "float64", values[name], f"{name} of {type(owner).__name__}", ranges.get(name))
        for name, full in names.items()
    }


def no_match(pattern: str, names: Sequence[str]) -> str:
    """What to say where a pattern matches no parameter."""
    stem = pattern.replace("*", "").strip(".")
    near = difflib.get_close_matches(stem, names, n=3, cutoff=0.4) or list(names[:5])
    return f"The pattern {pattern!r} matches none of the {len(names)} parameters. Close names: {', '.join(near)}."
