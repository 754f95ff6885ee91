"""Keras's settings in ours, from their configurations alone: Keras need not be there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import Optimizer, from_config
from edgeopt.optimizers.config.keras_schedules import schedule
from edgeopt.schedules import Schedule

__all__ = ["optimizer_from_config", "schedule_from_config"]


def optimizer_from_config(config: Mapping[str, Any]) -> Optimizer:
    """The rule of a Keras optimizer, from `keras.optimizers.serialize(optimizer)`.

    `optimizer.get_config()` does not say the class; it is taken where its options are those of one class alone.

    Raises:
        ConfigurationError: There is no rule of the same formula, or an option has no equal; the message says what to
            use in its place where that is somewhere else (clipping, averaging, accumulation).
    """
    rule = from_config(config)
    if not isinstance(rule, Optimizer):
        raise ConfigurationError("This is no configuration of a Keras optimizer.")
    return rule


def schedule_from_config(config: Mapping[str, Any]) -> Schedule:
    """The schedule of `keras.optimizers.schedules.serialize(schedule)`.

    Raises:
        ConfigurationError: There is no schedule of the same formula.
    """
    return schedule(config)
