"""Every schedule by name. The contract tests run over this table."""

from __future__ import annotations

from edgeopt.schedules.base import Schedule
from edgeopt.schedules.constant import Constant
from edgeopt.schedules.warmup import WarmupCosine, WarmupLinear

__all__ = ["SCHEDULES"]

SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "warmup_cosine": WarmupCosine,
    "warmup_linear": WarmupLinear,
}
