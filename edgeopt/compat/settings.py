"""A rule's settings as a dictionary that a user may change, as other frameworks keep them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from edgeopt.arguments import expanded
from edgeopt.array_types import Array, Namespace
from edgeopt.optimizers import Optimizer
from edgeopt.schedules import Constant

__all__ = ["rate", "with_settings"]


def with_settings(rule: Optimizer, settings: Mapping[str, Any]) -> Optimizer:
    """A rule with some of its fields replaced; the learning rate is none of them.

    Raises:
        ConfigurationError: The rule has no such field, or refuses the value.
    """
    names: set[str] = {field.name for field in fields(rule)} if is_dataclass(rule) else set()
    known = {name: getattr(rule, name) for name in names} if settings else {}
    return type(rule)(**{**known, **expanded(type(rule), settings)}) if settings else rule


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
