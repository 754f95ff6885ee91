"""Schedulers of torch.optim.lr_scheduler, by class name and constructor arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgeopt.optimizers.config.options import Options
from edgeopt.schedules import (
    Constant,
    CosineRestarts,
    Cyclic,
    Exponential,
    Linear,
    MultiStep,
    OneCycle,
    Polynomial,
    Product,
    Schedule,
    Sequential,
    Step,
    WarmupCosine,
)

__all__ = ["TORCH_SCHEDULES", "schedule"]

IGNORED = ("verbose", "optimizer")


# Schedulers of which several of one optimizer multiply each other, `eta_min` left out.
FACTORS = (*("ConstantLR", "CosineAnnealingLR", "ExponentialLR", "LinearLR", "MultiStepLR", "PolynomialLR", "StepLR"),)


def _fixed_momentum(o: Options) -> None:
    if o.flag("cycle_momentum", True):
        o.refuse("it changes the momentum too, which no schedule here does: give cycle_momentum=False")


def _final(o: Options, eta_min: float, lr: float) -> float:
    if not 0 <= eta_min <= lr:
        o.refuse(f"the lowest rate {eta_min} lies above the rate {lr} it starts from")
    return eta_min / lr if lr else 0.0


def _constant(o: Options, lr: float) -> Schedule:
    factor, total = o.number("factor", 1 / 3), o.count("total_iters", 5)
    if not 0 < factor <= 1:
        o.refuse(f"`factor={factor}` must be above 0, since the rate is divided by it again, and at most 1")
    # torch raises the rate when it reaches `total_iters`, which it is past from the start if that is 0.
    return Sequential((Constant(lr * factor), Constant(lr)), (total,)) if total > 0 else Constant(lr * factor)


def _linear(o: Options, lr: float) -> Schedule:
    start, end, total = o.number("start_factor", 1 / 3), o.number("end_factor", 1.0), o.count("total_iters", 5)
    return Linear(lr, start, end, total) if total > 0 else Constant(lr * start)


def _polynomial(o: Options, lr: float) -> Schedule:
    total, power = o.count("total_iters", 5), o.number("power", 1.0)
    return Polynomial(lr, total, power) if total > 0 else Constant(lr)


def _multi_step(o: Options, lr: float) -> Schedule:
    milestones, gamma = o.take("milestones", ()), o.number("gamma", 0.1)
    if any(milestone != int(milestone) for milestone in milestones):
        o.refuse(f"`milestones={milestones!r}` must be whole numbers")
    return MultiStep(lr, sorted(int(milestone) for milestone in milestones), gamma)


def _cosine(o: Options, lr: float) -> Schedule:
    """Up to T_max the same; from there on the lowest rate is held, where torch's rises again."""
    return WarmupCosine(lr, 0, o.count("T_max"), _final(o, o.number("eta_min", 0.0), lr))


def _restarts(o: Options, lr: float) -> Schedule:
    eta_min = o.number("eta_min", 0.0)
    _final(o, eta_min, lr)
    return CosineRestarts(lr, o.count("T_0"), o.count("T_mult", 1), eta_min)


def _cyclic(o: Options, lr: float) -> Schedule:
    _fixed_momentum(o)
    for name in ("scale_fn", "base_momentum", "max_momentum", "scale_mode"):
        o.only(name, None, {"base_momentum": 0.8, "max_momentum": 0.9, "scale_mode": "cycle"}.get(name))
    low, high, up = o.number("base_lr"), o.number("max_lr"), o.count("step_size_up", 2000)
    down = o.optional_count("step_size_down")
    mode = o.take("mode", "triangular")
    return Cyclic(high, low, up, down, mode, o.number("gamma", 1.0))


def _one_cycle(o: Options, lr: float) -> Schedule:
    _fixed_momentum(o)
    o.only("base_momentum", 0.85)
    o.only("max_momentum", 0.95)
    total, epochs, per_epoch = (o.optional_count(name) for name in ("total_steps", "epochs", "steps_per_epoch"))
    if total is None:
        if epochs is None or per_epoch is None:
            o.refuse("`total_steps`, or `epochs` and `steps_per_epoch`, must be given")
        total = epochs * per_epoch
    return OneCycle(
        o.number("max_lr"),
        total,
        pct_start=o.number("pct_start", 0.3),
        div_factor=o.number("div_factor", 25.0),
        final_div_factor=o.number("final_div_factor", 1e4),
        anneal_strategy=o.take("anneal_strategy", "cos"),
        three_phase=o.flag("three_phase"),
    )


def _sequential(o: Options, lr: float) -> Schedule:
    described = o.take("schedulers", ())
    for part in described[1:]:
        if part.get("kwargs", {}).get("total_iters") == 0:
            o.refuse(f"{part.get('name')} with `total_iters=0` has another rate where it is not the first of its parts")
    parts = tuple(schedule(part, lr) for part in described)
    return Sequential(parts, tuple(int(milestone) for milestone in o.take("milestones", ())))


def _chained(o: Options, lr: float) -> Schedule:
    first, *others = o.take("schedulers", ()) or (None,)
    if first is None:
        o.refuse("`schedulers` must be given")
    for part in (first, *others) if others else ():
        if part.get("name") not in FACTORS or part.get("kwargs", {}).get("eta_min", 0):
            o.refuse(f"{part.get('name')} sets a rate of its own, and multiplies no other")
    # One part gives the rate, the others are factors of it.
    return Product((schedule(first, lr), *(schedule(part, 1.0) for part in others)))


TORCH_SCHEDULES: dict[str, Callable[[Options, float], Schedule]] = {
    "ChainedScheduler": _chained,
    "ConstantLR": _constant,
    "CosineAnnealingLR": _cosine,
    "CosineAnnealingWarmRestarts": _restarts,
    "CyclicLR": _cyclic,
    "ExponentialLR": lambda o, lr: Exponential(lr, o.number("gamma")),
    "LinearLR": _linear,
    "MultiStepLR": _multi_step,
    "OneCycleLR": _one_cycle,
    "PolynomialLR": _polynomial,
    "SequentialLR": _sequential,
    "StepLR": lambda o, lr: Step(lr, o.count("step_size"), o.number("gamma", 0.1)),
}


def schedule(config: Mapping[str, Any], lr: float) -> Schedule:
    """The schedule of a torch scheduler over an optimizer whose rate is `lr`.

    Args:
        config: `{"name": class, "kwargs": arguments}`; the parts of SequentialLR and ChainedScheduler are such, too.
        lr: The optimizer's rate.

    Raises:
        ConfigurationError: There is no equal.
    """
    name = config.get("name")
    o = Options(f"torch.optim.lr_scheduler.{name}", config.get("kwargs", {}), IGNORED)
    if name not in TORCH_SCHEDULES:
        o.refuse(f"there is no equal; there is one of {', '.join(TORCH_SCHEDULES)}")
    o.only(
        "last_epoch", -1, because="begins in the middle, and a rule at its first update: load the count with a state"
    )
    made = TORCH_SCHEDULES[name](o, lr)
    o.finish()
    return made
