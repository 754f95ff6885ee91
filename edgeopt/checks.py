"""Checks of constructor arguments, each raising `ConfigurationError` with the name and value that failed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextvars import ContextVar
from numbers import Real

import numpy as np

from edgeopt.errors import ConfigurationError
from edgeopt_runtime.ranges import Range

__all__ = ["at_least", "fraction", "number_or_tuple", "number_tuple", "positive", "ranges_of", "require", "within"]

#: Where the ranges that are checked are written down, if they are.
_RECORD: ContextVar[dict[str, Range] | None] = ContextVar("record", default=None)


def ranges_of(settings: object, names: Iterable[str]) -> dict[str, Range]:
    """The ranges of some numbers, as the constructor of their owner checks them.

    A range is said once, where the constructor checks it. Here the checks of a finished object run again, and what they
    ask for is written down.

    Args:
        settings: A dataclass whose `__post_init__` checks its fields by the functions below.
        names: Names of numbers; what stands before a dot in them says whose they are. Those without a range are left
            out.
    """
    found: dict[str, Range] = {}
    token = _RECORD.set(found)
    try:
        getattr(settings, "__post_init__", dict)()
    finally:
        _RECORD.reset(token)
    fields = {name: name.rpartition(".")[2] for name in names}
    return {name: found[field] for name, field in fields.items() if field in found}


def require(condition: bool, message: str) -> None:
    """Raise `ConfigurationError` with the message unless the condition holds."""
    if not condition:
        raise ConfigurationError(message)


def _finite(name: str, value: object) -> float:
    if not isinstance(value, Real) or not math.isfinite(value):
        raise ConfigurationError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def within(name: str, value: object, allowed: Range) -> None:
    """Require a finite number of a range, which is that of the number's hyperparameter too."""
    number, record = _finite(name, value), _RECORD.get()
    if record is not None:
        record[name] = allowed.within(record.get(name, Range()))
    require(number in allowed, f"{name} must be {allowed}, got {value!r}")


def at_least(name: str, value: object, lowest: float) -> None:
    """Require a finite number not below `lowest`, which may be infinite."""
    within(name, value, Range(at_least=lowest) if math.isfinite(lowest) else Range())


def positive(name: str, value: object) -> None:
    """Require a finite number above zero."""
    within(name, value, Range(above=0.0))


def fraction(name: str, value: object, *, closed: bool = False) -> None:
    """Require a number in [0, 1), or in [0, 1] if `closed`."""
    within(name, value, Range(at_least=0.0, at_most=1.0) if closed else Range(at_least=0.0, below=1.0))


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
