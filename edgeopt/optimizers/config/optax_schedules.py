"""Schedules of optax, by the name of the function and its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgeopt.checks import at_least
from edgeopt.optimizers.config.options import Options
from edgeopt.schedules import Constant, Exponential, Linear, Polynomial, Schedule, Sequential, Step, WarmupCosine

__all__ = ["OPTAX_SCHEDULES", "line", "schedule"]


def line(first: float, last: float, steps: int) -> Schedule:
    """A straight line up or down, and its end from then on; without a length its beginning.

    Raises:
        ConfigurationError: A rate below 0.
    """
    at_least("a learning rate", min(first, last), 0.0)
    top = max(first, last)
    if steps <= 0:
        return Constant(first)
    return Linear(top, first / top if top else 0.0, last / top if top else 1.0, steps)


def _delayed(o: Options, first: float, then: Schedule) -> Schedule:
    begin = o.count("transition_begin", 0)
    return Sequential((Constant(first), then), (begin,)) if begin > 0 else then


def _cosine(o: Options) -> Schedule:
    o.only("exponent", 1.0)
    return WarmupCosine(o.number("init_value"), 0, o.count("decay_steps"), o.number("alpha", 0.0))


def _warmup_cosine(o: Options) -> Schedule:
    o.only("exponent", 1.0)
    first, peak, last = o.number("init_value"), o.number("peak_value"), o.number("end_value", 0.0)
    warmup, total = o.count("warmup_steps"), o.count("decay_steps")
    if not 0 <= last <= peak:
        o.refuse(f"`end_value={last}` must lie between 0 and the peak")
    fall = WarmupCosine(peak, 0, total - warmup, last / peak if peak else 0.0)
    return Sequential((line(first, peak, warmup), fall), (warmup,)) if warmup else fall


def _exponential(o: Options) -> Schedule:
    first, steps, rate = o.number("init_value"), o.count("transition_steps"), o.number("decay_rate")
    end = None if o.take_none("end_value") else o.number("end_value")
    if steps <= 0 or rate == 0:  # as optax says
        o.count("transition_begin", 0)
        o.flag("staircase")
        return Constant(first)
    if o.flag("staircase"):
        if end is not None:
            o.refuse("`end_value` with `staircase` has no equal here")
        return _delayed(o, first, Step(first, steps, rate))
    if end is not None and rate >= 1:
        o.refuse("an `end_value` of a rising rate has no equal here")
    if end is not None and end >= first:
        o.count("transition_begin", 0)
        return Constant(end)  # which is a floor from the start, also during a delay
    return _delayed(o, first, Exponential(first, rate, steps, end / first if end else 0.0))


def _polynomial(o: Options) -> Schedule:
    first, last, steps = o.number("init_value"), o.number("end_value"), o.count("transition_steps")
    power = o.number("power", 1.0)
    if steps <= 0 or power == 1.0:
        return _delayed(o, first, line(first, last, steps))
    if not 0 <= last <= first:
        o.refuse("only a polynomial that falls has an equal here")
    return _delayed(o, first, Polynomial(first, steps, power, min_lr_ratio=last / first if first else 0.0))


def _piecewise_constant(o: Options) -> Schedule:
    rate, changes = o.number("init_value"), o.take("boundaries_and_scales") or {}
    parts: list[Schedule] = []
    milestones: list[int] = []
    for boundary, scale in sorted((int(boundary), float(scale)) for boundary, scale in changes.items()):
        if boundary > 0:
            parts.append(Constant(rate))
            milestones.append(boundary)
        rate *= scale
    return Sequential((*parts, Constant(rate)), milestones)


def _warmup_constant(o: Options) -> Schedule:
    return line(o.number("init_value"), o.number("peak_value"), o.count("warmup_steps"))


def _joined(o: Options) -> Schedule:
    parts = tuple(schedule(part) for part in o.take("schedules", ()))
    return Sequential(parts, tuple(int(boundary) for boundary in o.take("boundaries", ())))


OPTAX_SCHEDULES: dict[str, Callable[[Options], Schedule]] = {
    "constant_schedule": lambda o: Constant(o.number("value")),
    "cosine_decay_schedule": _cosine,
    "exponential_decay": _exponential,
    "join_schedules": _joined,
    "linear_schedule": _polynomial,
    "piecewise_constant_schedule": _piecewise_constant,
    "polynomial_schedule": _polynomial,
    "warmup_constant_schedule": _warmup_constant,
    "warmup_cosine_decay_schedule": _warmup_cosine,
}


def schedule(config: Mapping[str, Any]) -> Schedule:
    """A schedule of optax.

    Args:
        config: `{"name": function, "kwargs": arguments}`; the parts of `join_schedules` are such, too.

    Raises:
        ConfigurationError: There is no equal.
    """
    name = config.get("name")
    o = Options(f"optax.{name}", config.get("kwargs", {}))
    if name not in OPTAX_SCHEDULES:
        o.refuse(f"there is no equal; there is one of {', '.join(OPTAX_SCHEDULES)}")
    made = OPTAX_SCHEDULES[name](o)
    o.finish()
    return made
