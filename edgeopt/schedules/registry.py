"""Every schedule by name. The contract tests run over this table."""

from __future__ import annotations

from edgeopt.components import Kind
from edgeopt.schedules.base import Schedule
from edgeopt.schedules.compose import Product, Sequential
from edgeopt.schedules.constant import Constant
from edgeopt.schedules.cosine import CosineCycles, CosineRestarts
from edgeopt.schedules.cyclic import Cyclic, OneCycle
from edgeopt.schedules.decay import WSD, InverseSqrt, InverseTime, Noam
from edgeopt.schedules.polynomial import REX, Linear, PiecewiseLinear, Polynomial
from edgeopt.schedules.steps import Exponential, MultiStep, PiecewiseConstant, Step
from edgeopt.schedules.warmup import ConstantWithWarmup, WarmupCosine, WarmupLinear

__all__ = ["SCHEDULE", "SCHEDULES"]

SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "constant_with_warmup": ConstantWithWarmup,
    "cosine_cycles": CosineCycles,
    "cosine_restarts": CosineRestarts,
    "cyclic": Cyclic,
    "exponential": Exponential,
    "inverse_sqrt": InverseSqrt,
    "inverse_time": InverseTime,
    "linear": Linear,
    "multi_step": MultiStep,
    "noam": Noam,
    "one_cycle": OneCycle,
    "piecewise_constant": PiecewiseConstant,
    "piecewise_linear": PiecewiseLinear,
    "polynomial": Polynomial,
    "product": Product,
    "rex": REX,
    "sequential": Sequential,
    "step": Step,
    "warmup_cosine": WarmupCosine,
    "warmup_linear": WarmupLinear,
    "wsd": WSD,
}

SCHEDULE = Kind(
    name="schedule",
    base=Schedule,  # type: ignore[type-abstract]  # only instances of it are made
    registry=SCHEDULES,
    example="edgeopt.schedules.WarmupCosine(1e-3, warmup_steps=100, total_steps=2000)",
)
