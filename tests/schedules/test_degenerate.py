"""Schedules at sizes where a phase has no length, or less than one update, against those they are taken from."""

import itertools
import warnings
from typing import Any

import array_api_compat.numpy as xp
import numpy as np
import pytest
import torch

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import from_config
from edgeopt.schedules import (
    CosineCycles,
    CosineRestarts,
    Cyclic,
    InverseSqrt,
    OneCycle,
    PiecewiseConstant,
    Schedule,
    WarmupCosine,
    WarmupLinear,
)

optax = pytest.importorskip("optax")
transformers = pytest.importorskip("transformers")

LR, STEPS = 0.3, 14


def ours(schedule: Schedule, steps: int = STEPS) -> list[float]:
    hyper = {name: np.float64(value) for name, value in schedule.hyperparameters().items()}
    with np.errstate(all="raise"):
        return [float(schedule(xp, hyper, np.int64(done))) for done in range(steps)]


def torch_rates(name: str, kwargs: dict[str, Any], steps: int = STEPS) -> list[float]:
    """The rates of torch's scheduler; raises what torch raises."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of milestones, and of steps without updates
        scheduler = built(optimizer, name, kwargs)
        rates = []
        for done in range(steps):
            rates.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            if done + 1 < steps:
                scheduler.step()
    return rates


def built(optimizer: torch.optim.Optimizer, name: str, kwargs: dict[str, Any]) -> Any:
    if "schedulers" in kwargs:
        parts = [built(optimizer, part["name"], part["kwargs"]) for part in kwargs["schedulers"]]
        rest = {key: value for key, value in kwargs.items() if key != "schedulers"}
        kind = getattr(torch.optim.lr_scheduler, name)
        return kind(optimizer, parts, **rest) if name == "SequentialLR" else kind(parts)
    return getattr(torch.optim.lr_scheduler, name)(optimizer, **kwargs)


def converted(name: str, kwargs: dict[str, Any]) -> Schedule:
    config = {"name": "SGD", "defaults": {"lr": LR}, "scheduler": {"name": name, "kwargs": kwargs}}
    rule = from_config(config)
    return rule.schedule  # type: ignore[union-attr] # one group


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("three_phase", [False, True])
def test_short_cycles_are_those_of_torch(three_phase: bool, strategy: Any) -> None:
    compared = 0
    for total, share in itertools.product([*range(1, 13), 15, 150], [0.0, 0.01, 0.1, 0.2, 0.3, 1 / 3, 0.5, 0.9, 1.0]):
        kwargs = {"max_lr": LR, "total_steps": total, "pct_start": share, "three_phase": three_phase}
        kwargs |= {"anneal_strategy": strategy, "cycle_momentum": False}
        schedule = OneCycle(LR, total_steps=total, pct_start=share, three_phase=three_phase, anneal_strategy=strategy)
        rates = ours(schedule, total)
        assert all(0 <= rate <= LR * (1 + 1e-12) for rate in rates)
        try:
            expected = torch_rates("OneCycleLR", kwargs, total)
        except ZeroDivisionError:  # its phase has no length
            continue
        assert converted("OneCycleLR", kwargs) == schedule
        np.testing.assert_allclose(rates, expected, rtol=1e-13, atol=1e-16, err_msg=str(kwargs))
        compared += 1
        assert ours(schedule, total + 5)[total:] == [rates[-1]] * 5
    assert compared > 100


ROWS: list[tuple[str, dict[str, Any]]] = [
    *(("ConstantLR", {"factor": 0.5, "total_iters": n}) for n in (0, 1, 2)),
    *(("ConstantLR", {"factor": 1.0, "total_iters": n}) for n in (0, 1)),
    *(("LinearLR", {"start_factor": 0.5, "end_factor": 0.9, "total_iters": n}) for n in (0, 1, 2)),
    *(("LinearLR", {"start_factor": 1.0, "end_factor": 0.0, "total_iters": n}) for n in (0, 1, 2)),
    *(("PolynomialLR", {"total_iters": n, "power": p}) for n in (0, 1, 2) for p in (1.0, 2.0)),
    *(("StepLR", {"step_size": n, "gamma": gamma}) for n in (1, 2, 99) for gamma in (0.5, 1.0, 0.0)),
    *(("MultiStepLR", {"milestones": m, "gamma": 0.5}) for m in ([], [0], [1], [3, 3], [5, 2], [0, 0, 1])),
    ("MultiStepLR", {"milestones": [3.0], "gamma": 0.5}),
    *(("ExponentialLR", {"gamma": gamma}) for gamma in (1.0, 0.5)),
    *(("CosineAnnealingWarmRestarts", {"T_0": n, "T_mult": m, "eta_min": 0.01}) for n in (1, 2) for m in (1, 2, 3)),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "eta_min": LR}),
    *(
        ("CyclicLR", {"base_lr": 0.1, "max_lr": LR, "step_size_up": up, "step_size_down": down, "mode": mode,
                      "gamma": 0.9, "cycle_momentum": False})
        for up, down in ((1, 1), (1, 2), (3, 1), (2, None))
        for mode in ("triangular", "triangular2", "exp_range")
    ),
    ("CyclicLR", {"base_lr": 0.0, "max_lr": LR, "step_size_up": 1, "cycle_momentum": False}),
    ("SequentialLR", {"schedulers": [{"name": "ConstantLR", "kwargs": {"total_iters": 0}},
                                     {"name": "StepLR", "kwargs": {"step_size": 1}}], "milestones": [1]}),
    ("ChainedScheduler", {"schedulers": [{"name": "ConstantLR", "kwargs": {"total_iters": 0}},
                                         {"name": "LinearLR", "kwargs": {"total_iters": 1}},
                                         {"name": "StepLR", "kwargs": {"step_size": 1, "gamma": 0.9}}]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kwargs"), ROWS, ids=str)
def test_degenerate_sizes_are_those_of_torch(name: str, kwargs: dict[str, Any]) -> None:
    np.testing.assert_allclose(ours(converted(name, kwargs)), torch_rates(name, kwargs), rtol=1e-13, atol=1e-17)


@pytest.mark.parametrize("eta_min", [0.0, 0.01, LR])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_short_cosines_are_those_of_torch_to_their_end(length: int, eta_min: float) -> None:
    kwargs = {"T_max": length, "eta_min": eta_min}
    expected = torch_rates("CosineAnnealingLR", kwargs, length + 1)
    np.testing.assert_allclose(
        ours(converted("CosineAnnealingLR", kwargs), length + 1), expected, rtol=1e-13, atol=1e-17
    )


STEP = {"name": "StepLR", "kwargs": {"step_size": 1}}
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("ConstantLR", {"factor": 0.0}),  # torch divides by it
    ("StepLR", {"step_size": 0}),
    ("StepLR", {"step_size": 1.5}),
    ("MultiStepLR", {"milestones": [2.5]}),  # which no step of torch ever meets
    ("MultiStepLR", {"milestones": [-1]}),
    ("CosineAnnealingLR", {"T_max": 0}),
    ("CosineAnnealingLR", {"T_max": 4, "eta_min": 1.0}),
    ("CosineAnnealingWarmRestarts", {"T_0": 0}),
    ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 0}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": LR, "step_size_up": 0, "cycle_momentum": False}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": LR, "step_size_down": 2.5, "cycle_momentum": False}),
    ("CyclicLR", {"base_lr": 0.5, "max_lr": LR, "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": LR, "total_steps": 0, "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": LR, "total_steps": 2.5, "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": LR, "epochs": 2, "steps_per_epoch": 1.5, "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": LR, "total_steps": 9}),  # it changes the momentum as well
    ("SequentialLR", {"schedulers": [STEP, STEP], "milestones": [0]}),
    ("SequentialLR", {"schedulers": [STEP] * 3, "milestones": [2, 2]}),
    ("SequentialLR", {"schedulers": [STEP, {"name": "ConstantLR", "kwargs": {"total_iters": 0}}], "milestones": [2]}),
    ("ChainedScheduler", {"schedulers": []}),
    ("ChainedScheduler", {"schedulers": [STEP, {"name": "CosineAnnealingWarmRestarts", "kwargs": {"T_0": 3}}]}),
    ("ChainedScheduler", {"schedulers": [{"name": "CosineAnnealingWarmRestarts", "kwargs": {"T_0": 3}}, STEP]}),
    ("ChainedScheduler", {"schedulers": [STEP, {"name": "CosineAnnealingLR", "kwargs": {"T_max": 3, "eta_min": 0.1}}]}),
]


@pytest.mark.parametrize(("name", "kwargs"), REFUSED, ids=str)
def test_what_torch_cannot_do_or_does_otherwise_is_refused(name: str, kwargs: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        converted(name, kwargs)


OPTAX: list[tuple[str, dict[str, Any]]] = [
    *(("linear_schedule", {"init_value": 0.1, "end_value": e, "transition_steps": n}) for e in (1, 0) for n in (0, 1)),
    ("linear_schedule", {"init_value": 0.0, "end_value": 0.0, "transition_steps": 3}),
    ("linear_schedule", {"init_value": 0.1, "end_value": 0.3, "transition_steps": 2, "transition_begin": 3}),
    ("polynomial_schedule", {"init_value": 0.1, "end_value": 0.3, "transition_steps": 0, "power": 2.0}),
    ("polynomial_schedule", {"init_value": 0.3, "end_value": 0.1, "transition_steps": 1, "power": 2.0}),
    ("cosine_decay_schedule", {"init_value": 0.3, "decay_steps": 1, "alpha": 0.1}),
    ("cosine_decay_schedule", {"init_value": 0.0, "decay_steps": 2}),
    ("warmup_constant_schedule", {"init_value": 0.1, "peak_value": 0.3, "warmup_steps": 0}),
    ("warmup_constant_schedule", {"init_value": 0.1, "peak_value": 0.3, "warmup_steps": 1}),
    *(
        ("warmup_cosine_decay_schedule",
         {"init_value": 0.1, "peak_value": 0.3, "warmup_steps": n, "decay_steps": n + 1, "end_value": 0.05})
        for n in (0, 1, 2)
    ),
    *(
        ("exponential_decay",
         {"init_value": 0.2, "transition_steps": n, "decay_rate": rate, "transition_begin": begin, "staircase": stairs})
        for n in (0, 1, 3) for rate in (0.0, 0.5, 1.0, 1.5) for begin in (-2, 0, 3) for stairs in (False, True)
    ),
    *(
        ("exponential_decay",
         {"init_value": first, "transition_steps": 2, "decay_rate": 0.5, "transition_begin": begin, "end_value": end})
        for first in (0.2, 0.0) for begin in (0, 3) for end in (0.0, 0.1, 0.2, 0.7, None)
    ),
    *(
        ("piecewise_constant_schedule", {"init_value": 0.2, "boundaries_and_scales": changes})
        for changes in (None, {}, {0: 0.5}, {1: 0.5}, {0: 2.0, 4: 0.5}, {3: 0.0, 4: 0.5})
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kwargs"), OPTAX, ids=str)
def test_degenerate_sizes_are_those_of_optax(name: str, kwargs: dict[str, Any]) -> None:
    config = {"name": "sgd", "kwargs": {"learning_rate": {"name": name, "kwargs": kwargs}}}
    expected = [float(getattr(optax, name)(**kwargs)(done)) for done in range(STEPS)]
    schedule = from_config(config).schedule  # type: ignore[union-attr] # one group
    np.testing.assert_allclose(ours(schedule), expected, rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        *(("linear_schedule", {"init_value": a, "end_value": b, "transition_steps": 4})
          for a, b in ((-1.0, 0.0), (-0.2, 0.1), (0.1, -0.2), (-0.2, -0.1))),
        ("polynomial_schedule", {"init_value": 0.1, "end_value": -0.1, "transition_steps": 4, "power": 2.0}),
        ("warmup_constant_schedule", {"init_value": -0.1, "peak_value": 0.0, "warmup_steps": 4}),
        ("exponential_decay", {"init_value": 0.1, "transition_steps": 1, "decay_rate": 1.5, "end_value": 0.3}),
        ("exponential_decay", {"init_value": -0.1, "transition_steps": 1, "decay_rate": 0.5, "end_value": 0.3,
                               "staircase": True}),
        ("exponential_decay", {"init_value": 0.1, "transition_steps": 1, "decay_rate": -0.5}),
        ("cosine_decay_schedule", {"init_value": 0.3, "decay_steps": 0}),
        ("warmup_cosine_decay_schedule", {"init_value": 0.1, "peak_value": 0.3, "warmup_steps": 3, "decay_steps": 3}),
        ("piecewise_constant_schedule", {"init_value": 0.3, "boundaries_and_scales": {3: -1.0}}),
    ],
    ids=str,
)  # fmt: skip
def test_rates_below_zero_and_the_like_are_refused(name: str, kwargs: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        from_config({"name": "sgd", "kwargs": {"learning_rate": {"name": name, "kwargs": kwargs}}})


@pytest.mark.parametrize("total", [1, 2, 5])
@pytest.mark.parametrize("warmup", [0, 1, 4])
def test_short_runs_are_those_of_transformers(warmup: int, total: int) -> None:
    pairs: list[tuple[Any, Any]] = [
        (lambda: WarmupLinear(LR, warmup, total), transformers.get_linear_schedule_with_warmup),
        (lambda: WarmupCosine(LR, warmup, total), transformers.get_cosine_schedule_with_warmup),
        (lambda: CosineCycles(LR, warmup, total), transformers.get_cosine_with_hard_restarts_schedule_with_warmup),
    ]
    for make, reference in pairs:
        if warmup >= total:
            with pytest.raises(ConfigurationError, match="warm-up must end before the run"):
                make()
            continue
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
        scheduler = reference(optimizer, warmup, total)
        expected = []
        for _ in range(total + 1):
            expected.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        np.testing.assert_allclose(ours(make(), total + 1), expected, rtol=1e-13, atol=1e-16)


def test_coincident_boundaries_leave_no_room_for_a_rate() -> None:
    assert ours(PiecewiseConstant(1.0, [2, 2, 3], [0.1, 0.2, 0.3, 0.4]), 5) == [0.1, 0.1, 0.3, 0.4, 0.4]
    assert ours(PiecewiseConstant(1.0, [0], [0.1, 0.2]), 2) == [0.2, 0.2]
    with pytest.raises(ConfigurationError, match="rise"):
        PiecewiseConstant(1.0, [3, 2], [0.1, 0.2, 0.3])


LATE = [2**24, 2**31 - 1, 2**31, 2**53, 2**63 - 1]


@pytest.mark.parametrize("done", LATE)
def test_rates_stay_right_at_the_end_of_counters(done: int) -> None:
    """The last count of a 32-bit and of a 64-bit integer, and those from which floats skip some."""
    step = np.int64(done)

    def rate(schedule: Schedule) -> float:
        hyper = {name: np.float64(value) for name, value in schedule.hyperparameters().items()}
        with np.errstate(all="raise"):
            return float(schedule(xp, hyper, step))

    assert rate(OneCycle(LR, 100)) == pytest.approx(LR / 25 / 1e4, rel=1e-12)
    assert rate(WarmupCosine(LR, 1, 100, 0.1)) == pytest.approx(0.1 * LR, rel=1e-12)
    assert rate(InverseSqrt(LR, 4)) == pytest.approx(LR * (4 / float(done)) ** 0.5, rel=1e-6)
    assert 0 <= rate(CosineRestarts(LR, 7, 2)) <= LR
    assert 0 <= rate(CosineRestarts(LR, 7)) <= LR
    assert 0.01 <= rate(Cyclic(LR, 0.01, 3, 4)) <= LR
