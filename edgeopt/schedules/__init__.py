"""Learning rate as a function of the step, computed inside the graph."""

from __future__ import annotations

from edgeopt.schedules.base import Schedule
from edgeopt.schedules.constant import Constant, as_schedule
from edgeopt.schedules.registry import SCHEDULES
from edgeopt.schedules.warmup import WarmupCosine, WarmupLinear

__all__ = ["SCHEDULES", "Constant", "Schedule", "WarmupCosine", "WarmupLinear", "as_schedule"]
