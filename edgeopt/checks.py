"""Checks of constructor arguments, each raising `ConfigurationError` with the name and value that failed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real

from edgeopt.errors import ConfigurationError

__all__ = ["at_least", "fraction", "number_tuple", "positive", "require"]


def require(condition: bool, message: str) -> None:
    """Raise `ConfigurationError` with the message unless the condition holds."""
    if not condition:
        raise ConfigurationError(message)


def _finite(name: str, value: object) -> float:
    if not isinstance(value, Real) or not math.isfinite(value):
        raise ConfigurationError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def at_least(name: str, value: object, lowest: float) -> None:
    """Require a finite number not below `lowest`."""
    require(_finite(name, value) >= lowest, f"{name} must be at least {lowest}, got {value!r}")


def positive(name: str, value: object) -> None:
    """Require a finite number above zero."""
    require(_finite(name, value) > 0.0, f"{name} must be above 0, got {value!r}")


def fraction(name: str, value: object, *, closed: bool = False) -> None:
    """Require a number in [0, 1), or in [0, 1] if `closed`."""
    number = _finite(name, value)
    interval = "[0, 1]" if closed else "[0, 1)"
    require(0.0 <= number < 1.0 or (closed and number == 1.0), f"{name} must lie in {interval}, got {value!r}")


def number_tuple(name: str, values: object) -> tuple[float, ...]:
    """Turn a sequence, array or tensor of non-negative numbers into a tuple, so that its owner stays hashable."""
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        raise ConfigurationError(f"{name} must be a sequence of numbers, got {values!r}")
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{name} must be a sequence of numbers: {error}") from error
    require(bool(numbers), f"{name} must not be empty")
    for position, number in enumerate(numbers):
        at_least(f"{name}[{position}]", number, 0.0)
    return numbers
