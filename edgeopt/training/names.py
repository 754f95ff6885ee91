"""Names of state tensors."""

from __future__ import annotations

__all__ = [
    "ACCUMULATED_WEIGHT",
    "CHECK",
    "DRAWS",
    "SCHEDULE_START",
    "SEED",
    "STEP",
    "accumulator_name",
    "measurement_name",
    "slot_name",
]

STEP = "optimizer.step"
#: The number of updates after which the schedule began.
SCHEDULE_START = "schedule.start"
SEED = "random.seed"
DRAWS = "random.draws"
ACCUMULATED_WEIGHT = "accumulated.weight"
CHECK = "check.written"


def slot_name(slot: str, parameter: str) -> str:
    """The name of an optimizer's state tensor."""
    return f"optimizer.{slot}.{parameter}"


def accumulator_name(parameter: str) -> str:
    """The name of a gradient accumulator."""
    return f"accumulator.{parameter}"


def measurement_name(ingredient: str, owner: str) -> str:
    """The name of what is measured in a batch; its owner is a parameter, or a group, which may have no name."""
    return f"measured.{ingredient}.{owner}" if owner else f"measured.{ingredient}"
