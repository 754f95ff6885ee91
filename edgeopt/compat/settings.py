"""A rule's settings as a dictionary that a user may change, as other frameworks keep them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from edgeopt.array_types import Array, Namespace
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import Optimizer
from edgeopt.schedules import Constant

__all__ = ["rate", "with_settings"]


def with_settings(rule: Optimizer, settings: Mapping[str, Any]) -> Optimizer:
    """A rule with some of its fields replaced; the learning rate is none of them.

    Raises:
        ConfigurationError: The rule has no such field, or refuses the value.
    """
    names: set[str] = {field.name for field in fields(rule)} - {"lr"} if is_dataclass(rule) else set()
    unknown = sorted(settings.keys() - names)
    if unknown:
        raise ConfigurationError(
            f"{type(rule).__name__} has no setting {', '.join(unknown)}; it has {', '.join(sorted(names))}."
        )
    return replace(rule, **settings) if settings else rule  # type: ignore[type-var] # a dataclass: it has these fields


def rate(xp: Namespace, rule: Optimizer, lr: Any, done: int | Array, scalar: Callable[[Any], Array]) -> Array:
    """The learning rate of an update: that of the rule's schedule, in proportion to `lr`.

    Args:
        xp: The namespace.
        rule: The rule with its schedule.
        lr: What the user set, at first the rate that the schedule is built around.
        done: Number of completed updates.
        scalar: Makes a number a 0-d float64 array.
    """
    schedule = rule.schedule
    if isinstance(schedule, Constant):
        return scalar(lr)
    numbers = {name: scalar(value) for name, value in schedule.hyperparameters().items()}
    scheduled = schedule(xp, numbers, xp.asarray(done, dtype=xp.int64))
    return scheduled * (scalar(lr) / schedule.base) if schedule.base else scheduled
