"""Other settings, or another rule, for some of the parameters."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from edgeopt.arguments import Component
from edgeopt.checks import at_least, require
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers.base import Optimizer

__all__ = ["Group", "ParameterGroups", "exactly"]


@dataclass(frozen=True)
class Group(metaclass=Component):
    """Some of the parameters, and what is different for them.

    A parameter belongs to the group if its name matches one of the patterns and it has one of the numbers of
    dimensions. What is left out is as for the parameters that no group matches.

    Attributes:
        parameters: Shell-style patterns of names, one or several: `("*.bias", "*norm*")`.
        ndim: Numbers of dimensions, one or several; None for any.
        name: Part of the names of the numbers that are the group's own, `optimizer.NAME.weight_decay`; without one
            the group is called by its place, `group_1`.
        optimizer: Another rule, with a learning rate of its own.
        lr_multiplier: Factor of the learning rate, which a device can change.
        weight_decay: In place of the rule's own; 0.0 leaves it out of the graph.
        frozen: Whether the parameters stay as they are.

    Raises:
        ConfigurationError: A number out of its range, a name that is no identifier, a frozen group with settings, or a
            weight decay for a rule that has none.
    """

    parameters: str | Sequence[str] = "*"
    ndim: int | Sequence[int] | None = None
    name: str | None = None
    optimizer: Optimizer | None = None
    lr_multiplier: float = 1.0
    weight_decay: float | None = None
    frozen: bool = False

    def __post_init__(self) -> None:
        at_least("lr_multiplier", self.lr_multiplier, 0.0)
        if self.weight_decay is not None:
            at_least("weight_decay", self.weight_decay, 0.0)
        require(self.name is None or self.name.isidentifier(), f"name must be an identifier, got {self.name!r}")
        require(
            not self.frozen or (self.optimizer is None and self.weight_decay is None and self.lr_multiplier == 1.0),
            "a frozen group has no other settings",
        )
        if self.optimizer is not None:
            self.rule(self.optimizer)  # checks that it has a weight decay

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns, however many."""
        return (self.parameters,) if isinstance(self.parameters, str) else tuple(self.parameters)

    def matches(self, name: str, ndim: int) -> bool:
        """Whether a parameter of that name and number of dimensions belongs to the group."""
        wanted = (self.ndim,) if isinstance(self.ndim, int) else self.ndim
        return (wanted is None or ndim in wanted) and any(fnmatch.fnmatchcase(name, each) for each in self.patterns)

    def rule(self, default: Optimizer) -> Optimizer:
        """The group's update rule, where `default` is that of the parameters which no group matches."""
        chosen = default if self.optimizer is None else self.optimizer
        return chosen if self.weight_decay is None else _decaying(chosen, self.weight_decay)


@dataclass(frozen=True)
class ParameterGroups(metaclass=Component):
    """An update rule, and groups of parameters for which something else holds; the first group that matches counts.

    Muon for matrices and AdamW for the rest, without decay on biases and norms::

        ParameterGroups(
            AdamW(1e-3),
            (
                Group(("embedding.*", "head.*")),
                Group(ndim=2, optimizer=Muon(2e-2), name="matrices"),
                Group(ndim=(0, 1), weight_decay=0.0),
            ),
        )

    Raises:
        ConfigurationError: Something is not of these classes, or two groups have one name.
    """

    default: Optimizer
    groups: Sequence[Group] = ()

    def __post_init__(self) -> None:
        require(isinstance(self.default, Optimizer), f"default must be an optimizer, got {self.default!r}")
        for group in self.groups:
            require(isinstance(group, Group), f"groups must consist of Group, got {group!r}")
            group.rule(self.default)
        names = [self.name(place) for place in range(len(self.groups))]
        require(len(set(names)) == len(names), f"groups must have different names, got {names}")

    def name(self, place: int) -> str:
        """The name of the group at a place."""
        return self.groups[place].name or f"group_{place + 1}"


def exactly(name: str) -> str:
    """A pattern that matches this name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _decaying(rule: Optimizer, weight_decay: float) -> Optimizer:
    """The rule, or the one that it wraps, with another weight decay."""
    settings: dict[str, Any] = (
        {field.name: getattr(rule, field.name) for field in fields(rule)} if is_dataclass(rule) else {}
    )
    if "weight_decay" in settings:
        return replace(rule, weight_decay=weight_decay)  # type: ignore[type-var] # a dataclass, as was just seen
    for name, value in settings.items():
        if isinstance(value, Optimizer):
            return replace(rule, **{name: _decaying(value, weight_decay)})  # type: ignore[type-var] # as above
    raise ConfigurationError(f"{type(rule).__name__} has no weight decay to be replaced.")
