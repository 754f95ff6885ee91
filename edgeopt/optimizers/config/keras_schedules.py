"""Schedules of Keras, as they are serialized within the configuration of an optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from edgeopt.optimizers.config.optax_schedules import line
from edgeopt.optimizers.config.options import Options
from edgeopt.schedules import (
    Constant,
    CosineRestarts,
    Exponential,
    InverseTime,
    Polynomial,
    Schedule,
    Sequential,
    Step,
    WarmupCosine,
)

__all__ = ["KERAS_SCHEDULES", "schedule"]


def _exponential(o: Options) -> Schedule:
    lr, steps, rate = o.number("initial_learning_rate"), o.count("decay_steps"), o.number("decay_rate")
    return Step(lr, steps, rate) if o.flag("staircase") else Exponential(lr, rate, steps)


def _inverse_time(o: Options) -> Schedule:
    o.only("staircase", False)
    return InverseTime(o.number("initial_learning_rate"), o.number("decay_rate"), o.count("decay_steps"))


def _polynomial(o: Options) -> Schedule:
    o.only("cycle", False)
    lr, last = o.number("initial_learning_rate"), o.number("end_learning_rate", 1e-4)
    steps, power = o.count("decay_steps"), o.number("power", 1.0)
    if power == 1.0:
        return line(lr, last, steps)
    if not 0 <= last <= lr:
        o.refuse("only a polynomial that falls has an equal here")
    return Polynomial(lr, steps, power, min_lr_ratio=last / lr if lr else 0.0)


def _piecewise(o: Options) -> Schedule:
    boundaries, values = o.take("boundaries", ()), o.take("values", ())
    # A boundary still has the value in front of it.
    return Sequential(
        tuple(Constant(float(value)) for value in values), tuple(math.floor(each) + 1 for each in boundaries)
    )


def _cosine(o: Options) -> Schedule:
    lr, steps, final = o.number("initial_learning_rate"), o.count("decay_steps"), o.number("alpha", 0.0)
    target, warmup = o.take("warmup_target"), o.count("warmup_steps", 0)
    if target is None or not warmup:
        return WarmupCosine(lr if target is None else float(target), 0, steps, final)
    return Sequential((line(lr, float(target), warmup), WarmupCosine(float(target), 0, steps, final)), (warmup,))


def _restarts(o: Options) -> Schedule:
    o.only("m_mul", 1.0)
    lr, period, final = o.number("initial_learning_rate"), o.count("first_decay_steps"), o.number("alpha", 0.0)
    return CosineRestarts(lr, period, o.count("t_mul", 2), min_lr_ratio=final)


KERAS_SCHEDULES: dict[str, Callable[[Options], Schedule]] = {
    "CosineDecay": _cosine,
    "CosineDecayRestarts": _restarts,
    "ExponentialDecay": _exponential,
    "InverseTimeDecay": _inverse_time,
    "PiecewiseConstantDecay": _piecewise,
    "PolynomialDecay": _polynomial,
}


def schedule(config: Mapping[str, Any]) -> Schedule:
    """A schedule of Keras.

    Args:
        config: `{"class_name": class, "config": its configuration}`, and what else `serialize` writes.

    Raises:
        ConfigurationError: There is no equal.
    """
    name = config.get("class_name")
    o = Options(f"keras.optimizers.schedules.{name}", config.get("config", {}), ("name",))
    if name not in KERAS_SCHEDULES:
        o.refuse(f"there is no equal; there is one of {', '.join(KERAS_SCHEDULES)}")
    made = KERAS_SCHEDULES[name](o)
    o.finish()
    return made
