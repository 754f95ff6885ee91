"""The end of a schedule, and what begins anew: against runs that were fresh from the start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import edgeopt
from edgeopt import Bundle, tracing
from edgeopt.losses import MSE, CrossEntropy
from edgeopt.optimizers import (
    OPTIMIZERS,
    SGD,
    AdamW,
    Averaged,
    Group,
    Lookahead,
    Optimizer,
    OptimizerLike,
    ScheduleFreeAdamW,
    ScheduleFreeSGD,
)
from edgeopt.schedules import Schedule, WarmupLinear
from edgeopt.training import ForwardGraph, ForwardModel, compose
from edgeopt_runtime import BundleContents, MissingGraphError, ScheduleEndWarning, StateError, TrainingSession

rng = np.random.default_rng(0)
WEIGHTS = {"weight": rng.normal(size=(4, 3)), "scale": rng.normal(size=4), "bias": np.zeros(3)}
BATCHES = [{"x": rng.normal(size=(5, 4)), "target": rng.integers(0, 3, 5)} for _ in range(6)]


def forward() -> ForwardGraph:
    made = tracing.new_graph("forward")
    tracer = tracing.Tracer(made)
    x = tracer.input("x", np.dtype(np.float64), ("batch", 4))
    weight, scale, bias = (tracer.input(name, value.dtype, value.shape) for name, value in WEIGHTS.items())
    tracer.output((x * scale) @ weight + bias, "y")
    return ForwardGraph(tracing.new_model(made), ("x",), ("y",))


def made(rule: OptimizerLike, weights: dict[str, NDArray[Any]] = WEIGHTS, **settings: Any) -> Bundle:
    model = ForwardModel(forward(), forward(), weights, {})
    return Bundle.of(compose(model, loss=CrossEntropy(), optimizer=rule, **settings))


def train(session: TrainingSession, batches: list[dict[str, Any]] = BATCHES) -> None:
    for batch in batches:
        session.step(batch)


def alike(first: TrainingSession, second: TrainingSession, *without: str) -> None:
    for name, array in second.state().items():
        if name not in without:
            assert first.state()[name].tobytes() == array.tobytes(), name


# One of each way to begin: zeros, other numbers, copies, unit matrices, random bases, integers. tests/full has all.
BEGINNINGS = (
    *("adafisher", "adamw", "averaged_adam", "cocob", "dion", "dog", "fista", "galore", "kron", "micro_adam", "nadam"),
    *("prodigy", "schedule_free_adamw", "soap", "yogi"),
)


@pytest.mark.parametrize("name", BEGINNINGS)
def test_an_optimizer_begins_anew_as_if_it_were_fresh(name: str) -> None:
    begins_anew(name)


def begins_anew(name: str) -> None:
    session = made(OPTIMIZERS[name](), signatures=("step", "reset")).session()
    train(session, BATCHES[:3])
    session.reset(seed=0)
    session.reset()
    # A bundle made of these weights; what the first slots take from weights in another way is kept from the export.
    fresh = made(OPTIMIZERS[name](), session.parameters(), signatures=("step",)).session()
    different = ("optimizer.max_distance",) if name == "dog" else ()
    alike(session, fresh, *different)
    if not different:
        train(session, BATCHES[3:])
        train(fresh, BATCHES[3:])
        alike(session, fresh)


def rates(session: TrainingSession, count: int) -> list[float]:
    return [session.step(BATCHES[0])["lr"] for _ in range(count)]


def test_a_schedule_goes_on_or_begins_anew_by_itself() -> None:
    session = made(AdamW(WarmupLinear(1e-2, 2, 8))).session()
    first = rates(session, 5)
    moments = session.state()["optimizer.exp_avg.weight"]
    session.reset(schedule=True)
    assert session.state()["optimizer.step"] == 5, "bias corrections go on"
    assert session.state()["optimizer.exp_avg.weight"].tobytes() == moments.tobytes()
    assert rates(session, 3) == first[:3]
    session.reset(optimizer=True)
    assert session.state()["optimizer.step"] == 0
    assert not session.state()["optimizer.exp_avg.weight"].any()
    assert rates(session, 2) == first[3:]
    session.reset()
    assert rates(session, 5) == first


def test_it_goes_on_where_it_was_after_saving(tmp_path: Any) -> None:
    session = made(AdamW(WarmupLinear(1e-2, 2, 8))).session()
    rates(session, 5)
    session.reset(schedule=True)
    session.step(BATCHES[0])
    session.save(tmp_path / "half.edgeopt")
    assert rates(TrainingSession.load(tmp_path / "half.edgeopt"), 3) == rates(session, 3)


def test_the_schedule_goes_on_under_another_optimizer() -> None:
    bundle = made(AdamW(WarmupLinear(1e-2, 2, 8)))
    session = bundle.session()
    rates(session, 5)
    session.reset(schedule=True)
    session.step(BATCHES[0])
    now = Bundle(bundle.manifest, bundle.graphs, session.state())
    other = now.with_optimizer(AdamW(WarmupLinear(1e-2, 2, 8), weight_decay=0.0)).bundle.session()
    assert rates(other, 3) == rates(session, 3)
    other.reset()
    assert other.state()["optimizer.step"] == 0


def test_accumulated_gradients_are_dropped_and_seeds_set() -> None:
    session = made(SGD(0.1)).session()
    session.accumulate(BATCHES[0])
    session.reset(accumulated=True, seed=17)
    assert session.state()["random.seed"] == 17
    with pytest.raises(StateError, match="Nothing has been accumulated"):
        session.apply()
    session.accumulate(BATCHES[0])
    session.reset(schedule=True)
    session.apply()


def test_a_bundle_without_the_graph_says_so() -> None:
    session = made(SGD(0.1), signatures=("step",)).session()
    with pytest.raises(MissingGraphError, match="Export it again"):
        session.reset()
    session.reset(schedule=True)


@pytest.mark.parametrize("schedule", [WarmupLinear(1e-2, 2, 4), WarmupLinear(1e-2, 0, 4)])
def test_the_end_of_a_schedule_is_said_once(schedule: Schedule) -> None:
    session = made(AdamW(schedule)).session()
    rates(session, 4)
    with pytest.warns(
        ScheduleEndWarning, match=r"update 5 was 0: the schedule \(warmup_linear\).*reset\(schedule=True\)"
    ):
        session.step(BATCHES[0])
    rates(session, 3)
    session.reset(schedule=True)
    rates(session, 4)
    with pytest.warns(ScheduleEndWarning):
        session.fit([BATCHES[0]], progress=False)


def test_a_rate_that_was_set_to_zero_is_no_end() -> None:
    session = made(AdamW(1e-2)).session()
    session.set_hyper(lr=0.0)
    rates(session, 4)


def test_the_end_for_one_group_is_said_too() -> None:
    rule: OptimizerLike = [Group("bias", optimizer=SGD(WarmupLinear(1e-2, 0, 2)), name="bias"), AdamW(1e-2)]
    session = made(rule, signatures=("step",)).session()
    rates(session, 2)
    with pytest.warns(ScheduleEndWarning, match="`lr_bias`"):
        session.step(BATCHES[0])


def predicted(session: TrainingSession) -> NDArray[Any]:
    return np.asarray(session.predict(BATCHES[0]))


VIEWED = [ScheduleFreeAdamW(0.1), ScheduleFreeSGD(0.5), Averaged(AdamW(1e-2)), Averaged(AdamW(1e-2), mode="ema")]


@pytest.mark.parametrize("rule", [*VIEWED, Lookahead(SGD(0.1)), SGD(0.1)], ids=lambda rule: type(rule).__name__)
def test_the_evaluated_weights_can_be_taken_elsewhere(rule: Optimizer) -> None:
    session = made(rule).session()
    train(session)
    trained, evaluated = session.parameters(), session.parameters("evaluated")
    state = session.state()
    elsewhere = made(SGD(0.1)).session()
    elsewhere.load_parameters(evaluated)
    np.testing.assert_allclose(predicted(elsewhere), predicted(session), rtol=1e-12)
    differs = any(not np.array_equal(trained[name], evaluated[name]) for name in trained)
    assert differs is (rule in VIEWED)
    for name, array in session.state().items():
        assert array.tobytes() == state[name].tobytes(), name
    train(session)


def test_what_does_not_count_updates_can_still_drop_and_seed() -> None:
    bundle = made(SGD(0.1), signatures=("step", "accumulate"))
    tensors = tuple(spec for spec in bundle.manifest.tensors if spec.name != "schedule.start")
    state = {name: value for name, value in bundle.state.items() if name != "schedule.start"}
    accumulate = {"accumulate": bundle.manifest.signatures["accumulate"]}
    manifest = replace(bundle.manifest, tensors=tensors, signatures=accumulate)
    session = TrainingSession(
        BundleContents(manifest, {"accumulate.onnx": bundle.contents().graphs["accumulate.onnx"]}, state)
    )
    session.accumulate(BATCHES[0])
    with pytest.raises(StateError, match="does not count where its schedule began"):
        session.reset(schedule=True)
    session.reset(accumulated=True, seed=3)
    assert session.state()["random.seed"] == 3


def test_only_two_views_are_known() -> None:
    with pytest.raises(StateError, match='"trained" or "evaluated"'):
        made(SGD(0.1)).session().parameters("averaged")  # type: ignore[arg-type]  # wrong on purpose


def test_loaded_weights_are_evaluated_once_the_averages_begin_there() -> None:
    session = made(Averaged(AdamW(1e-2))).session()
    train(session)
    zeros = {name: 0 * value for name, value in session.parameters().items()}
    with pytest.warns(UserWarning, match="evaluates another tensor than `weight`"):
        session.load_parameters(zeros)
    assert predicted(session).any()
    session.reset(optimizer=True)
    assert not predicted(session).any()


def test_float32_modules_too() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 70), torch.nn.Tanh(), torch.nn.Linear(70, 2))
    bundle = edgeopt.export(net, torch.zeros(2, 4), loss=MSE(), optimizer=Averaged(AdamW(1e-2)), check=False)
    session, fresh = bundle.session(), bundle.session()
    batch = np.ones((2, 4), np.float32), np.ones((2, 2), np.float32)
    for _ in range(3):
        session.step(batch)
    with pytest.warns(UserWarning, match="evaluates another tensor"):
        fresh.load_parameters(session.parameters())
    session.reset()
    fresh.reset()
    session.step(batch)
    fresh.step(batch)
    alike(session, fresh)
