from __future__ import annotations

import math
from dataclasses import replace

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgeopt.errors import ConfigurationError
from edgeopt.schedules import (
    REX,
    SCHEDULES,
    WSD,
    Constant,
    ConstantWithWarmup,
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
    PiecewiseConstant,
    PiecewiseLinear,
    Polynomial,
    Product,
    Sequential,
    Step,
    WarmupCosine,
    WarmupLinear,
    as_schedule,
)

EXAMPLES = {
    "constant": Constant(0.1),
    "constant_with_warmup": ConstantWithWarmup(0.1, warmup_steps=3),
    "cosine_cycles": CosineCycles(0.1, warmup_steps=3, total_steps=20, num_cycles=3),
    "cosine_restarts": CosineRestarts(0.1, T_0=3, T_mult=2, min_lr_ratio=0.2),
    "cyclic": Cyclic(0.1, base_lr=0.02, step_size_up=3, step_size_down=5, mode="triangular2"),
    "exponential": Exponential(0.1, gamma=0.8, decay_steps=2, min_lr_ratio=0.05),
    "inverse_sqrt": InverseSqrt(0.1, warmup_steps=3, timescale=5),
    "inverse_time": InverseTime(0.1, decay_rate=0.5),
    "linear": Linear(0.1, total_iters=7),
    "multi_step": MultiStep(0.1, milestones=(3, 7)),
    "noam": Noam(1.0, d_model=64, warmup_steps=4),
    "one_cycle": OneCycle(0.1, total_steps=16),
    "piecewise_constant": PiecewiseConstant(0.1, milestones=(4, 7), factors=(0.5, 1.0, 0.2)),
    "piecewise_linear": PiecewiseLinear(0.1, milestones=(0, 4, 10), factors=(0.0, 1.0, 0.2)),
    "polynomial": Polynomial(0.1, total_iters=12, power=2.0, warmup_steps=3, min_lr_ratio=0.2),
    "product": Product((WarmupLinear(0.1, warmup_steps=3, total_steps=12), Linear(1.0, total_iters=5))),
    "rex": REX(0.1, total_steps=12, min_lr_ratio=0.2),
    "sequential": Sequential((Linear(0.1, total_iters=4), Step(0.05, step_size=3)), milestones=(5,)),
    "step": Step(0.1, step_size=4, gamma=0.5),
    "warmup_cosine": WarmupCosine(0.1, warmup_steps=3, total_steps=12, min_lr_ratio=0.2),
    "warmup_linear": WarmupLinear(0.1, warmup_steps=3, total_steps=12),
    "wsd": WSD(0.1, warmup_steps=3, stable_steps=4, decay_steps=5, min_lr_ratio=0.2),
}


def rate(schedule, xp, done, **overrides):
    hyper = {**schedule.hyperparameters(), **overrides}
    arrays = {name: xp.asarray(value, dtype=xp.float64) for name, value in hyper.items()}
    return schedule(xp, arrays, xp.asarray(done, dtype=xp.int64))


def lambda_lr(peak, factor, steps):
    """Rates that torch hands out when stepped through."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def linear_factor(warmup, total):
    def factor(done):
        if done < warmup:
            return done / warmup
        return max(0.0, (total - done) / (total - warmup))

    return factor


def cosine_factor(warmup, total, final):
    def factor(done):
        if done < warmup:
            return done / warmup
        progress = min(1.0, (done - warmup) / (total - warmup))
        return final + (1.0 - final) * (1.0 + math.cos(math.pi * progress)) / 2.0

    return factor


def test_schedules_are_built_around_a_rate():
    bases = {name: schedule.base for name, schedule in EXAMPLES.items() if name != "noam"}
    assert set(bases.values()) == {0.1}


def test_every_registered_schedule_has_an_example():
    assert {name: type(example) for name, example in EXAMPLES.items()} == SCHEDULES


@pytest.mark.parametrize("schedule", EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.parametrize("done", [0, 3, 12, 2**40])
def test_rates_are_finite_float64_scalars(schedule, xp, done):
    value = rate(schedule, xp, done)
    assert value.shape == ()
    assert value.dtype == xp.float64
    assert 0.0 <= float(value) <= 0.1


@pytest.mark.parametrize("schedule", EXAMPLES.values(), ids=EXAMPLES)
def test_numbers_can_be_changed_without_a_new_instance(schedule, xp):
    changeable = {} if hasattr(schedule, "schedules") else schedule.hyperparameters()  # parts are tested by themselves
    for name, value in changeable.items():
        for done in range(15):
            assert rate(schedule, xp, done, **{name: 0.5 * value}) == rate(
                replace(schedule, **{name: 0.5 * value}), xp, done
            )


@pytest.mark.parametrize("schedule", EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.parametrize("done", [0, 1, 3, 7, 12, 100])
def test_as_onnx_it_computes_the_same(schedule, run_as_onnx, done):
    def program(xp, arrays):
        return {"rate": schedule(xp, arrays, arrays["done"])}

    inputs = {**schedule.hyperparameters(), "done": np.int64(done)}
    result = run_as_onnx(program, inputs)["rate"]
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, rate(schedule, numpy_namespace, done), rtol=1e-14, atol=1e-17)


@pytest.mark.parametrize(("warmup", "total"), [(0, 20), (1, 20), (5, 20), (19, 20), (0, 1)])
def test_linear_equals_the_closed_form(warmup, total, xp):
    schedule = WarmupLinear(0.3, warmup, total)
    expected = lambda_lr(0.3, linear_factor(warmup, total), total + 5)
    np.testing.assert_allclose([rate(schedule, xp, t) for t in range(total + 5)], expected, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("final", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(("warmup", "total"), [(0, 20), (1, 20), (5, 20), (19, 20), (0, 1)])
def test_cosine_equals_the_closed_form(warmup, total, final, xp):
    schedule = WarmupCosine(0.3, warmup, total, final)
    expected = lambda_lr(0.3, cosine_factor(warmup, total, final), total + 5)
    np.testing.assert_allclose([rate(schedule, xp, t) for t in range(total + 5)], expected, rtol=1e-14, atol=1e-16)


@given(warmup=st.integers(0, 10**6), decay=st.integers(1, 10**7), done=st.integers(0, 2 * 10**7), final=st.floats(0, 1))
def test_closed_forms_hold_for_long_runs(xp, warmup, decay, done, final):
    total = warmup + decay
    linear, cosine = (
        rate(WarmupLinear(1.0, warmup, total), xp, done),
        rate(WarmupCosine(1.0, warmup, total, final), xp, done),
    )
    np.testing.assert_allclose(float(linear), linear_factor(warmup, total)(done), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(float(cosine), cosine_factor(warmup, total, final)(done), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("cls", [WarmupLinear, WarmupCosine])
def test_first_rate_peak_and_end(cls, xp):
    schedule = cls(0.3, warmup_steps=4, total_steps=10)
    assert rate(schedule, xp, 0) == 0.0
    assert rate(schedule, xp, 4) == 0.3
    assert rate(schedule, xp, 10) == 0.0
    assert rate(schedule, xp, 11) == 0.0
    assert rate(cls(0.3, warmup_steps=0, total_steps=10), xp, 0) == 0.3


def test_numbers_become_constant_schedules(xp):
    assert as_schedule(0.5) == Constant(0.5)
    assert as_schedule(EXAMPLES["warmup_linear"]) is EXAMPLES["warmup_linear"]
    assert rate(Constant(0.5), xp, 123) == 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(-1.0), "lr"),
        (lambda: WarmupLinear(float("nan"), 1, 2), "lr"),
        (lambda: WarmupLinear(1.0, -1, 2), "warmup"),
        (lambda: WarmupLinear(1.0, 0, 0), "total"),
        (lambda: WarmupCosine(1.0, 10, 10), "warm-up"),
        (lambda: WarmupCosine(1.0, 1, 10, min_lr_ratio=1.5), "min_lr_ratio"),
        (lambda: as_schedule("cosine"), "lr"),  # type: ignore[arg-type] # wrong on purpose
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
