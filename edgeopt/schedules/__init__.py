"""Learning rate as a function of the step, computed inside the graph."""

from __future__ import annotations

from edgeopt.schedules.base import Schedule
from edgeopt.schedules.compose import Product, Sequential
from edgeopt.schedules.constant import Constant, as_schedule
from edgeopt.schedules.cosine import CosineCycles, CosineRestarts
from edgeopt.schedules.cyclic import Cyclic, OneCycle
from edgeopt.schedules.decay import WSD, InverseSqrt, InverseTime, Noam
from edgeopt.schedules.polynomial import REX, Linear, PiecewiseLinear, Polynomial
from edgeopt.schedules.registry import SCHEDULE, SCHEDULES
from edgeopt.schedules.steps import Exponential, MultiStep, PiecewiseConstant, Step
from edgeopt.schedules.warmup import ConstantWithWarmup, WarmupCosine, WarmupLinear

__all__ = [
    "REX",
    "SCHEDULE",
    "SCHEDULES",
    "WSD",
    "Constant",
    "ConstantWithWarmup",
    "CosineCycles",
    "CosineRestarts",
    "Cyclic",
    "Exponential",
    "InverseSqrt",
    "InverseTime",
    "Linear",
    "MultiStep",
    "Noam",
    "OneCycle",
    "PiecewiseConstant",
    "PiecewiseLinear",
    "Polynomial",
    "Product",
    "Schedule",
    "Sequential",
    "Step",
    "WarmupCosine",
    "WarmupLinear",
    "as_schedule",
]
