"""Checks of constructor arguments, each raising `ConfigurationError` with the name and value that failed."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np

from edgeopt.errors import ConfigurationError

__all__ = ["at_least", "fraction", "number_or_tuple", "number_tuple", "positive", "require"]


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


def number_or_tuple(name: str, values: object) -> float | tuple[float, ...]:
    """Turn non-negative numbers into a float, or a tuple if they are a sequence, so that their owner stays hashable.

    `values` may be a number, a sequence of numbers, or a numpy array or torch tensor of at most one dimension.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{name} must be numbers: {error}") from error
    require(array.ndim <= 1 and array.size > 0, f"{name} must be a number or a sequence of them, got {values!r}")
    require(bool(np.all((array >= 0.0) & np.isfinite(array))), f"{name} must be finite and at least 0, got {values!r}")
    return tuple(array.tolist()) if array.ndim else float(array)


def number_tuple(name: str, values: object) -> tuple[float, ...]:
    """Turn a sequence, array or tensor of non-negative numbers into a tuple."""
    numbers = number_or_tuple(name, values)
    if not isinstance(numbers, tuple):
        raise ConfigurationError(f"{name} must be a sequence of numbers, got {values!r}")
    return numbers
