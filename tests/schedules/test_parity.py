"""Rates against those that torch's schedulers hand out step by step, and against closed forms of other libraries."""

from __future__ import annotations

import math

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from edgeopt.errors import ConfigurationError
from edgeopt.schedules import (
    REX,
    WSD,
    Constant,
    CosineCycles,
    CosineRestarts,
    Cyclic,
    Exponential,
    InverseSqrt,
    InverseTime,
    Linear,
    MultiStep,
    Noam,
    OneCycle,
    PiecewiseLinear,
    Polynomial,
    Product,
    Sequential,
    Step,
)

LR, STEPS = 0.3, 40


def rates(schedule, steps=STEPS, xp=numpy_namespace):
    arrays = {name: xp.asarray(value, dtype=xp.float64) for name, value in schedule.hyperparameters().items()}
    return [float(schedule(xp, arrays, xp.asarray(done, dtype=xp.int64))) for done in range(steps)]


def chained(*makers):
    """Several of torch's schedulers of one optimizer."""
    return lambda optimizer: lr_scheduler.ChainedScheduler([make(optimizer) for make in makers])


def sequential(makers, milestones):
    return lambda optimizer: lr_scheduler.SequentialLR(optimizer, [make(optimizer) for make in makers], milestones)


TORCH = {
    "step": (Step(LR, 7), lambda o: lr_scheduler.StepLR(o, 7)),
    "step by a half": (Step(LR, 1, gamma=0.5), lambda o: lr_scheduler.StepLR(o, 1, 0.5)),
    "multi step": (MultiStep(LR, (3, 8, 20)), lambda o: lr_scheduler.MultiStepLR(o, [3, 8, 20])),
    "multi step from the start": (MultiStep(LR, (), gamma=0.5), lambda o: lr_scheduler.MultiStepLR(o, [], 0.5)),
    "exponential": (Exponential(LR, 0.9), lambda o: lr_scheduler.ExponentialLR(o, 0.9)),
    "linear": (Linear(LR), lambda o: lr_scheduler.LinearLR(o)),
    "linear down": (
        Linear(LR, 1.0, 0.25, 11),
        lambda o: lr_scheduler.LinearLR(o, 1.0, 0.25, 11),
    ),
    "constant factor": (
        PiecewiseLinear(LR, (4, 5), (1 / 3, 1.0)),
        lambda o: lr_scheduler.ConstantLR(o),
    ),
    "polynomial": (Polynomial(LR, 9, power=2.0), lambda o: lr_scheduler.PolynomialLR(o, 9, 2.0)),
    "polynomial, straight": (Polynomial(LR, 5), lambda o: lr_scheduler.PolynomialLR(o)),
    "cosine restarts": (
        CosineRestarts(LR, 7, min_lr_ratio=0.1),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 7, 1, 0.1 * LR),
    ),
    "cosine restarts, growing": (
        CosineRestarts(LR, 3, T_mult=2),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2),
    ),
    "cosine restarts, growing fast": (
        CosineRestarts(LR, 1, T_mult=3),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 1, 3),
    ),
    "triangular": (
        Cyclic(LR, 0.2 * LR, step_size_up=4, step_size_down=4),
        lambda o: lr_scheduler.CyclicLR(o, 0.2 * LR, LR, 4, cycle_momentum=False),
    ),
    "triangular, halving": (
        Cyclic(LR, 0.2 * LR, step_size_up=3, step_size_down=6, mode="triangular2"),
        lambda o: lr_scheduler.CyclicLR(o, 0.2 * LR, LR, 3, 6, "triangular2", cycle_momentum=False),
    ),
    "triangular, shrinking": (
        Cyclic(LR, 0.2 * LR, step_size_up=5, step_size_down=2, mode="exp_range", gamma=0.9),
        lambda o: lr_scheduler.CyclicLR(o, 0.2 * LR, LR, 5, 2, "exp_range", 0.9, cycle_momentum=False),
    ),
    "one cycle": (
        OneCycle(LR, STEPS),
        lambda o: lr_scheduler.OneCycleLR(o, LR, STEPS, cycle_momentum=False),
    ),
    "one cycle, straight, in three phases": (
        OneCycle(
            LR,
            STEPS,
            pct_start=0.4,
            div_factor=10.0,
            final_div_factor=100.0,
            anneal_strategy="linear",
            three_phase=True,
        ),
        lambda o: lr_scheduler.OneCycleLR(
            o, LR, STEPS, None, None, 0.4, "linear", False, div_factor=10.0, final_div_factor=100.0, three_phase=True
        ),
    ),
    "one after the other": (
        Sequential((Linear(LR, total_iters=4), Exponential(LR, 0.9), Constant(LR)), (6, 20)),
        sequential(
            [
                lambda o: lr_scheduler.LinearLR(o, total_iters=4),
                lambda o: lr_scheduler.ExponentialLR(o, 0.9),
                lambda o: lr_scheduler.ConstantLR(o, 1.0),
            ],
            [6, 20],
        ),
    ),
    "all at once": (
        Product((Linear(LR, total_iters=4), Exponential(1.0, 0.9))),
        chained(lambda o: lr_scheduler.LinearLR(o, total_iters=4), lambda o: lr_scheduler.ExponentialLR(o, 0.9)),
    ),
}


@pytest.mark.parametrize(("schedule", "make"), TORCH.values(), ids=TORCH)
def test_equals_torch(schedule, make, xp):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    scheduler = make(optimizer)
    expected = []
    for done in range(STEPS):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if done < STEPS - 1:
            scheduler.step()
    np.testing.assert_allclose(rates(schedule, xp=xp), expected, rtol=1e-13, atol=1e-15)


def rise(done, warmup, factor):
    return done / warmup if done < warmup else factor


def hard_restarts(done, warmup, total, cycles):
    progress = (done - warmup) / (total - warmup)
    wave = 0.0 if progress >= 1.0 else 0.5 * (1 + math.cos(math.pi * ((cycles * progress) % 1.0)))
    return rise(done, warmup, wave)


def polynomial(done, warmup, total, power, final):
    left = 1 - min(1.0, max(0.0, (done - warmup) / (total - warmup)))
    return rise(done, warmup, (1 - final) * left**power + final)


def inverse_sqrt(done, warmup, timescale):
    timescale = timescale or warmup
    return rise(done, warmup, 1 / math.sqrt((max(done, warmup) + timescale - warmup) / timescale))


def wsd(done, warmup, stable, decay, shape, final):
    if done < warmup:
        return (1 - final) * done / warmup + final
    if done < warmup + stable:
        return 1.0
    if done >= warmup + stable + decay:
        return final
    q = (done - warmup - stable) / decay
    shapes = {
        "cosine": 0.5 * (1 + math.cos(math.pi * q)),
        "linear": 1 - q,
        "1-sqrt": 1 - math.sqrt(q),
        "1-square": 1 - q**2,
    }
    return (1 - final) * shapes[shape] + final


FORMS = {
    "hard restarts": (CosineCycles(LR, 5, 30, num_cycles=4), lambda t: LR * hard_restarts(t, 5, 30, 4)),
    "hard restarts at once": (CosineCycles(LR, 0, 30), lambda t: LR * hard_restarts(t, 0, 30, 1)),
    "polynomial": (
        Polynomial(LR, 30, power=1.5, warmup_steps=4, min_lr_ratio=0.1),
        lambda t: LR * polynomial(t, 4, 30, 1.5, 0.1),
    ),
    "inverse square root": (InverseSqrt(LR, 6), lambda t: LR * inverse_sqrt(t, 6, 0)),
    "inverse square root, scaled": (InverseSqrt(LR, 6, timescale=20), lambda t: LR * inverse_sqrt(t, 6, 20)),
    "inverse square root at once": (InverseSqrt(LR, 0, timescale=20), lambda t: LR * inverse_sqrt(t, 0, 20)),
    "inverse time": (InverseTime(LR, 0.4), lambda t: LR / (1 + 0.4 * t)),
    "noam": (Noam(2.0, 64, 10), lambda t: 2 / 8 * min((t + 1) ** -0.5, (t + 1) * 10**-1.5)),
    "rex": (REX(LR, 30, min_lr_ratio=0.1), lambda t: LR * (0.1 + 0.9 * (1 - (z := min(1, t / 30))) / (1 - z / 2))),
    "exponential with a floor": (Exponential(LR, 0.5, 4, 0.1), lambda t: LR * max(0.5 ** (t / 4), 0.1)),
    "trapezoid": (
        PiecewiseLinear(LR, (0, 5, 20, 30), (0.0, 1.0, 1.0, 0.1)),
        lambda t: LR * np.interp(t, [0, 5, 20, 30], [0.0, 1.0, 1.0, 0.1]),
    ),
    **{
        f"warm-up, stable, {shape}": (
            WSD(LR, 5, 10, 15, shape, 0.1),
            lambda t, shape=shape: LR * wsd(t, 5, 10, 15, shape, 0.1),  # type: ignore[misc] # the default binds this shape
        )
        for shape in ("cosine", "linear", "1-sqrt", "1-square")
    },
    "nothing but stable": (WSD(LR, 0, 10, 0), lambda t: LR * wsd(t, 0, 10, 0, "cosine", 0.0)),
}


@pytest.mark.parametrize(("schedule", "form"), FORMS.values(), ids=FORMS)
def test_equals_the_closed_form(schedule, form, xp):
    expected = [form(done) for done in range(STEPS)]
    np.testing.assert_allclose(rates(schedule, xp=xp), expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("multiplier", [2, 3, 5, 10])
@pytest.mark.parametrize("period", [1, 3, 7, 1000])
def test_restarts_are_exact_far_into_a_run(multiplier, period):
    schedule = CosineRestarts(1.0, period, multiplier)
    hyper = {name: np.float64(value) for name, value in schedule.hyperparameters().items()}
    begin, length = 0, period
    while begin < 10**9:
        assert schedule(numpy_namespace, hyper, np.int64(begin)) == 1.0
        begin, length = begin + length, length * multiplier
        if length > 2 * multiplier:
            assert schedule(numpy_namespace, hyper, np.int64(begin - 1)) < 0.5


def test_a_part_is_asked_for_no_step_before_its_beginning():
    schedule = Sequential((Constant(LR), InverseTime(LR, 1.0)), (2,))
    np.testing.assert_allclose(rates(schedule, 4), [LR, LR, LR, LR / 2], rtol=1e-15)
    assert schedule.hyperparameters() == {"0.lr": LR, "1.lr": LR, "1.decay_rate": 1.0, "1.decay_steps": 1.0}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Step(LR, 0), "step_size"),
        (lambda: MultiStep(LR, 3), "milestones"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: MultiStep(LR, (-3,)), "milestones"),
        (lambda: Exponential(LR, 0.0), "gamma"),
        (lambda: Linear(LR, total_iters=0), "total"),
        (lambda: Polynomial(LR, 10, power=0.0), "power"),
        (lambda: Polynomial(LR, 10, warmup_steps=10), "warm-up"),
        (lambda: REX(LR, 10, min_lr_ratio=2.0), "min_lr_ratio"),
        (lambda: PiecewiseLinear(LR, (0, 5, 5), (1.0, 1.0, 1.0)), "rise"),
        (lambda: PiecewiseLinear(LR, (0, 5), (1.0,)), "as many"),
        (lambda: PiecewiseLinear(LR, (), ()), "at least one"),
        (lambda: PiecewiseLinear(LR, (0,), (-1.0,)), "factors"),
        (lambda: CosineRestarts(LR, 5, T_mult=0.5), "T_mult"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: CosineCycles(LR, 0, 5, num_cycles=0), "num_cycles"),
        (lambda: Cyclic(LR, 0.0, step_size_up=0), "step_size_up"),
        (lambda: Cyclic(LR, 0.0, mode="square"), "mode"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: OneCycle(LR, 10, div_factor=0.0), "div"),
        (lambda: OneCycle(LR, 10, anneal_strategy="cosine"), "anneal_strategy"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: InverseSqrt(LR, 0), "timescale"),
        (lambda: InverseTime(LR, -1.0), "decay"),
        (lambda: Noam(d_model=0), "d_model"),
        (lambda: WSD(LR, 1, 1, 1, decay_type="sqrt"), "decay_type"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: Sequential((Constant(LR),), (3,)), "one milestone"),
        (lambda: Sequential((Constant(LR),) * 3, (3, 3)), "rise"),
        (lambda: Sequential((), ()), "schedules"),
        (lambda: Product((0.1,)), "schedules"),  # type: ignore[arg-type] # wrong on purpose
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
