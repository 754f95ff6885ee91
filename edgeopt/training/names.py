"""Names of state tensors."""

from __future__ import annotations

import re

__all__ = [
    "ACCUMULATED_WEIGHT",
    "CHECK",
    "DRAWS",
    "SCHEDULE_START",
    "SEED",
    "STEP",
    "accumulated_weight",
    "accumulator_name",
    "measurement_name",
    "share_slot",
    "slot_name",
    "snake_case",
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


def accumulator_name(parameter: str, share: int = 0) -> str:
    """The name of a gradient accumulator: of the losses that are divided by one of several weights."""
    return f"accumulator_{share + 1}.{parameter}" if share else f"accumulator.{parameter}"


def accumulated_weight(share: int = 0) -> str:
    """The name of what the sums in such accumulators are divided by."""
    return f"{ACCUMULATED_WEIGHT}_{share + 1}" if share else ACCUMULATED_WEIGHT


def share_slot(share: int) -> str:
    """What accumulators are called that hold the sums of a further share of the losses."""
    return f"share_{share + 1}"


def snake_case(name: str) -> str:
    """`clip_by_value` for `ClipByValue`, `nll` for `NLL`, `ctc` for `CTC`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def measurement_name(ingredient: str, owner: str) -> str:
    """The name of what is measured in a batch; its owner is a parameter, or a group, which may have no name."""
    return f"measured.{ingredient}.{owner}" if owner else f"measured.{ingredient}"
