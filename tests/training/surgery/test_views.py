"""Away from rules that evaluate something else than the parameter: what they evaluated becomes the parameter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from edgeopt import Bundle
from edgeopt.losses import MSE
from edgeopt.optimizers import (
    SGD,
    Adam,
    AdamW,
    AMacP,
    Averaged,
    AveragedAdam,
    Group,
    Lookahead,
    OptimizerLike,
    Ranger,
    RMSprop,
    ScheduleFreeAdamW,
    ScheduleFreeRAdam,
    ScheduleFreeSGD,
)
from edgeopt.training import compose

rng = np.random.default_rng(0)
WEIGHTS = {
    "first.weight": rng.normal(size=(4, 6)),
    "first.bias": rng.normal(size=6),
    "last.weight": rng.normal(size=(6, 3)),
    "last.bias": rng.normal(size=3),
}
BATCHES = [{"x": rng.normal(size=(5, 4)), "target": rng.normal(size=(5, 3))} for _ in range(6)]
VIEWS: dict[str, OptimizerLike] = {
    "schedule-free sgd": ScheduleFreeSGD(0.01),
    "schedule-free adamw": ScheduleFreeAdamW(0.01),
    "averaged adam": AveragedAdam(0.01),
    "mean": Averaged(SGD(0.01, momentum=0.9)),
    "ema around lookahead": Averaged(Lookahead(Adam(0.01), k=2), mode="ema", beta=0.5),
    "amacp": AMacP(0.01),
    "groups": [Group("*.bias", optimizer=AveragedAdam(0.01)), ScheduleFreeAdamW(0.01)],
}


def network(p):
    hidden = p["x"] @ p["first.weight"] + p["first.bias"]
    return hidden * hidden @ p["last.weight"] + p["last.bias"]


@pytest.fixture(scope="module")
def export(forward_model) -> Callable[..., Bundle]:
    def make(optimizer: OptimizerLike, weights: Any = WEIGHTS, **settings: Any) -> Bundle:
        return Bundle.of(
            compose(forward_model(network, weights, ("batch", 4)), loss=MSE(), optimizer=optimizer, **settings)
        )

    return make


def trained(bundle: Bundle, steps: int = 3) -> Bundle:
    session = bundle.session()
    for batch in BATCHES[:steps]:
        session.step(batch)
    return replace(bundle, state=session.state())


def prediction(bundle: Bundle) -> Any:
    return bundle.session().predict(BATCHES[0]["x"])


@pytest.mark.parametrize("new", [SGD(0.01), AdamW(0.01), ScheduleFreeRAdam(0.01), Averaged(SGD(0.01))], ids=repr)
@pytest.mark.parametrize("old", VIEWS.values(), ids=VIEWS)
def test_predictions_stay(export, old, new):
    before = trained(export(old))
    result = before.with_optimizer(new)
    ours, theirs = before.session(), result.bundle.session()
    np.testing.assert_allclose(prediction(result.bundle), prediction(before), rtol=1e-13)
    assert theirs.evaluate(BATCHES[0]) == pytest.approx(ours.evaluate(BATCHES[0]), rel=1e-13)
    for name in WEIGHTS:
        stays = np.array_equal(result.bundle.state[name], before.state[name])
        assert stays == (name not in result.from_view)


def test_the_average_of_a_schedule_free_rule_becomes_the_parameter(export):
    before = trained(export(ScheduleFreeAdamW(0.01, beta1=0.8)))
    result = before.with_optimizer(AdamW(0.01))
    assert set(result.from_view) == set(WEIGHTS)
    for name in WEIGHTS:
        y, z = before.state[name], before.state[f"optimizer.z.{name}"]
        np.testing.assert_allclose(result.bundle.state[name], (y - 0.2 * z) / 0.8, rtol=1e-12)


def test_first_values_of_slots_follow_what_the_parameter_became(export):
    before = trained(export(ScheduleFreeSGD(0.01)))
    state = before.with_optimizer(Lookahead(ScheduleFreeAdamW(0.01))).bundle.state
    for name in WEIGHTS:
        for slot in ("z", "slow_param"):
            np.testing.assert_array_equal(state[f"optimizer.{slot}.{name}"], state[name])


@pytest.mark.parametrize("old", VIEWS.values(), ids=VIEWS)
def test_a_rule_of_the_same_class_goes_on_bit_for_bit(export, old):
    before = trained(export(old))
    result = before.with_optimizer(old)
    assert result.from_view == ()
    assert result.started == ()
    assert result.dropped == ()
    expected, found = trained(before).state, trained(result.bundle).state
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (AveragedAdam(0.01), Averaged(AdamW(0.01, weight_decay=0.0), mode="debiased")),
        (Averaged(Adam(0.01), mode="debiased"), AveragedAdam(0.01)),
    ],
    ids=["to a wrapper", "from a wrapper"],
)
def test_an_average_goes_on_beside_the_parameter(export, old, new):
    before = trained(export(old))
    result = before.with_optimizer(new)
    assert result.from_view == ()
    assert result.started == ()
    expected, found = trained(before).state, trained(result.bundle).state
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=name)


def test_averaging_begins_in_the_middle_of_a_run(export):
    """Where it begins the average is the parameter, and Adam's moments go on."""
    result = trained(export(Adam(0.01))).with_optimizer(Averaged(Adam(0.01), start=3))
    assert {name for name in result.started if "averaged" not in name} == set()
    session = result.bundle.session()
    iterates = []
    for batch in BATCHES[3:]:
        session.step(batch)
        iterates.append(session.state()["last.bias"])
    np.testing.assert_allclose(session.state()["optimizer.averaged_param.last.bias"], np.mean(iterates, axis=0))


def test_an_average_does_not_go_on_without_its_count(export):
    """AdamW begins anew, and the counter with it, by which the mean would be forgotten at the next step."""
    before = trained(export(Averaged(SGD(0.01))))
    result = before.with_optimizer([Group("*.bias", optimizer=AdamW(0.01)), Averaged(SGD(0.02))])
    assert set(result.from_view) == set(WEIGHTS)
    for name in ("first.weight", "last.weight"):
        np.testing.assert_array_equal(
            result.bundle.state[f"optimizer.averaged_param.{name}"], before.state[f"optimizer.averaged_param.{name}"]
        )


def test_a_slow_copy_begins_where_the_parameter_does(export):
    before = trained(export(Averaged(Ranger(0.01))))
    after = before.with_optimizer(Ranger(0.01))
    assert after.kept["optimizer.exp_avg.last.bias"] == "optimizer.exp_avg.last.bias"
    np.testing.assert_array_equal(after.bundle.state["optimizer.slow_param.last.bias"], after.bundle.state["last.bias"])


def test_what_is_frozen_is_what_was_evaluated(export):
    before = trained(export(ScheduleFreeSGD(0.01)))
    result = before.with_optimizer([Group("first.*", frozen=True), ScheduleFreeSGD(0.01)])
    assert set(result.from_view) == {"first.weight", "first.bias"}
    np.testing.assert_allclose(prediction(result.bundle), prediction(before), rtol=1e-13)
    np.testing.assert_array_equal(result.bundle.state["last.weight"], before.state["last.weight"])


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        (ScheduleFreeAdamW(0.01), RMSprop(0.01), ("square_avg", "exp_avg_sq")),
        (Adam(0.01), ScheduleFreeAdamW(0.01), ("exp_avg_sq", "exp_avg_sq")),
        (ScheduleFreeRAdam(0.01), ScheduleFreeAdamW(0.01), ("exp_avg_sq", "exp_avg_sq")),
    ],
    ids=["to rmsprop", "from adam", "from another"],
)
def test_squares_of_schedule_free_rules_go_on(export, old, new, kept):
    before = trained(export(old))
    result = before.with_optimizer(new)
    assert result.kept[f"optimizer.{kept[0]}.last.bias"] == f"optimizer.{kept[1]}.last.bias"
    assert result.bundle.state["optimizer.step"] == 3
    assert np.isfinite(result.bundle.session().step(BATCHES[3])["loss"])


def test_a_view_in_bfloat16(export):
    weights = {name: value.astype(ml_dtypes.bfloat16) for name, value in WEIGHTS.items()}
    bundle = export(AveragedAdam(0.01), weights)
    state = {name: np.array(value) for name, value in bundle.state.items()}
    state["optimizer.averaged_param.last.bias"] += ml_dtypes.bfloat16(1.0)
    result = replace(bundle, state=state).with_optimizer(SGD(0.01))
    np.testing.assert_array_equal(
        result.bundle.state["last.bias"].astype(np.float32),
        state["optimizer.averaged_param.last.bias"].astype(np.float32),
    )
