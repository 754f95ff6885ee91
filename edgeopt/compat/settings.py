"""A rule's settings as a dictionary that a user may change, as other frameworks keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from edgeopt.arguments import expanded
from edgeopt.array_types import Array, Namespace
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import Optimizer
from edgeopt.schedules import Constant

__all__ = ["check_real", "current", "rate", "switches", "with_settings"]


def with_settings(rule: Optimizer, settings: Mapping[str, Any]) -> Optimizer:
    """A rule with some of its fields replaced; the learning rate is none of them.

    Raises:
        ConfigurationError: The rule has no such field, or refuses the value.
    """
    return type(rule)(**{**_settings(rule), **expanded(type(rule), settings)}) if settings else rule


def current(rule: Optimizer, settings: Mapping[str, Any]) -> Optimizer:
    """A rule with the values that some of its settings have now; of one that goes around another, the inner one's.

    The learning rate is none of them. Names that the rule does not have are left alone, and so are those of what goes
    around it, which may be called the same.

    Raises:
        ConfigurationError: A rule refuses a value.
    """
    own = _settings(rule)
    inner = {name: value for name, value in own.items() if isinstance(value, Optimizer)}
    if inner:
        now: dict[str, Any] = {name: current(value, settings) for name, value in inner.items()}
    else:
        now = {name: _plain(settings[name]) for name in own.keys() & settings.keys() - {"lr"}}
    changes = {name: value for name, value in now.items() if value is not own[name] and value != own[name]}
    return replace(rule, **changes) if changes else rule  # type: ignore[type-var] # a dataclass: it has these fields


def switches(rule: Optimizer) -> dict[str, float]:
    """The numbers of a rule, or of those inside it, that are left out for being 0.0 and may be given a value later."""
    found: dict[str, float] = {}
    for name, own in _settings(rule).items():
        if isinstance(own, Optimizer):
            found.update(switches(own))
        elif name in getattr(rule, "optional", ()) and own == 0.0:
            found[name] = 0.0
    return found


def _settings(rule: Optimizer) -> dict[str, Any]:
    """The fields of a rule; a rule that is no dataclass has none."""
    return {field.name: getattr(rule, field.name) for field in fields(rule)} if is_dataclass(rule) else {}


def check_real(dtypes: Iterable[Any]) -> None:
    """Check that parameters are floating-point arrays of real numbers: rules are defined for these.

    Raises:
        ConfigurationError: One is not.
    """
    for dtype in dtypes:
        if "float" not in str(dtype):
            raise ConfigurationError(
                f"Update rules move real floating-point parameters, not {dtype}. Keep a complex one as its real and "
                "imaginary parts (torch.view_as_real), which is what torch's own optimizers update."
            )


def _plain(value: Any) -> Any:
    """A number in place of an array or tensor of one, which a user's code may have made of it."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


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
