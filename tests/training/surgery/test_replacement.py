"""Another optimizer for a bundle: the graphs are those of a fresh export, state goes on where it means the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from torch import nn

import edgeopt
from edgeopt import Bundle
from edgeopt.errors import SignatureError
from edgeopt.losses import MSE, CrossEntropy
from edgeopt.metrics import Accuracy
from edgeopt.optimizers import (
    SGD,
    AdaHessian,
    Adam,
    AdamW,
    Adan,
    Group,
    HutchinsonDiagonal,
    Lion,
    Lookahead,
    NAdam,
    Normal,
    OptimizerLike,
    Rule,
    SophiaG,
    SophiaH,
)
from edgeopt.training import compose
from edgeopt.transforms import ClipByGlobalNorm

rng = np.random.default_rng(0)
WEIGHTS = {
    "first.weight": rng.normal(size=(4, 6)),
    "first.bias": rng.normal(size=6),
    "last.weight": rng.normal(size=(6, 3)),
    "last.bias": rng.normal(size=3),
}
BATCHES = [{"x": rng.normal(size=(5, 4)), "target": rng.normal(size=(5, 3))} for _ in range(6)]


def network(p):
    hidden = p["x"] @ p["first.weight"] + p["first.bias"]
    return hidden * hidden @ p["last.weight"] + p["last.bias"]


@dataclass(frozen=True)
class Averaged(Rule):
    """Shows the mean of the iterates; moves by noise too."""

    def init(self, param):
        return {"total": np.zeros_like(param)}

    def ingredients(self, param):
        return {"noise": Normal()}

    def update(self, xp, param, grad, state, hyper, step):
        param = param - xp.astype(hyper["lr"], param.dtype) * (grad + state["noise"])
        return param, {"total": state["total"] + param}

    def view(self, xp, param, state, hyper, step):
        count = xp.astype(xp.maximum(step, xp.ones_like(step)), param.dtype)
        return xp.where(step > 0, state["total"] / count, param)


@dataclass(frozen=True)
class Curved(Rule):
    """Asks for curvature."""

    def ingredients(self, param):
        return {"hessian": HutchinsonDiagonal()}

    def update(self, xp, param, grad, state, hyper, step):
        return param - xp.astype(hyper["lr"], param.dtype) * grad / (1.0 + xp.abs(state["hessian"])), {}


@pytest.fixture(scope="module")
def export(forward_model) -> Callable[..., Bundle]:
    def make(optimizer: OptimizerLike, weights: Any = WEIGHTS, **settings: Any) -> Bundle:
        settings.setdefault("joined_size", 20)
        return Bundle.of(
            compose(forward_model(network, weights, ("batch", 4)), loss=MSE(), optimizer=optimizer, **settings)
        )

    return make


def trained(bundle: Bundle, batches: list[dict[str, Any]]) -> dict[str, Any]:
    session = bundle.session()
    for batch in batches:
        session.step(batch)
    return session.state()


PAIRS: dict[str, tuple[OptimizerLike, OptimizerLike]] = {
    "adam to sgd": (Adam(0.01), SGD(0.01, momentum=0.9)),
    "groups": (
        [Group("last.*", lr_multiplier=2.0), AdamW(0.01)],
        [Group("*.bias", optimizer=SGD(0.1), name="biases"), Group(ndim=2, lr_multiplier=0.5), AdamW(0.01)],
    ),
    "view": (SGD(0.01), Averaged(0.01)),
    "view and noise gone": (Averaged(0.01), SGD(0.01, momentum=0.5)),
    "curvature gone": (Curved(0.01), Adam(0.01)),
    "wrapped": (Lookahead(Adam(0.01)), Lookahead(SGD(0.01, momentum=0.5))),
}


@pytest.mark.parametrize(("old", "new"), PAIRS.values(), ids=PAIRS)
def test_the_graphs_do_what_freshly_exported_ones_do(export, old, new):
    transforms = () if isinstance(new, SGD) else (ClipByGlobalNorm(0.5),)
    changed = export(old, transforms=transforms).with_optimizer(new).bundle
    fresh = export(new, transforms=transforms)
    assert {spec.name for spec in changed.manifest.hyperparameters} == {
        spec.name for spec in fresh.manifest.hyperparameters
    }
    assert changed.manifest.producer == fresh.manifest.producer
    sessions = [replace(changed, state=fresh.state).session(), fresh.session()]
    for batch in BATCHES[:3]:
        steps = [session.step(batch) for session in sessions]
        assert steps[0].keys() == steps[1].keys()
    for session in sessions:
        session.accumulate(BATCHES[3])
        session.apply()
    if not isinstance(new, Averaged):  # its noise has other streams
        for name, value in sessions[1].state().items():
            np.testing.assert_allclose(sessions[0].state()[name], value, rtol=1e-9, atol=1e-12, err_msg=name)
    else:
        changed_state = sessions[0].state()
        mean = {name: changed_state[f"optimizer.total.{name}"] / 4 for name in WEIGHTS}
        np.testing.assert_allclose(sessions[0].predict(BATCHES[0]["x"]), network({**mean, **BATCHES[0]}), rtol=1e-9)
    assert sessions[0].evaluate(BATCHES[0]).keys() == sessions[1].evaluate(BATCHES[0]).keys()


def test_adam_goes_on_as_adamw(export):
    """Adam without decay and AdamW without decay are one rule, so nothing may be lost on the way."""
    old = replace(export(Adam(0.01)), state=trained(export(Adam(0.01)), BATCHES[:3]))
    new = old.with_optimizer(AdamW(0.01, weight_decay=0.0))
    assert new.kept["optimizer.exp_avg.last.bias"] == "optimizer.exp_avg.last.bias"
    assert new.kept["optimizer.step"] == "optimizer.step"
    assert not new.started
    assert not new.dropped
    expected = trained(export(Adam(0.01)), BATCHES)
    for name, value in trained(new.bundle, BATCHES[3:]).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-10, err_msg=name)


@pytest.mark.parametrize("dampening", [0.0, 0.9])
def test_momentum_is_rescaled_to_what_it_means(export, dampening):
    old = replace(export(Adam(0.01)), state=trained(export(Adam(0.01)), BATCHES[:3]))
    new = old.with_optimizer(SGD(0.01, momentum=0.9, dampening=dampening))
    assert new.kept["optimizer.momentum_buffer.last.bias"] == "optimizer.exp_avg.last.bias"
    assert set(new.dropped) == {f"optimizer.exp_avg_sq.{name}" for name in WEIGHTS}
    factor = (1.0 - dampening) / 0.1
    average = old.state["optimizer.exp_avg.last.bias"]
    np.testing.assert_allclose(new.bundle.state["optimizer.momentum_buffer.last.bias"], factor * average)
    back = new.bundle.with_optimizer(Lion(0.01))
    np.testing.assert_allclose(back.bundle.state["optimizer.exp_avg.last.bias"], average)
    assert back.bundle.state["optimizer.step"] == 3


@pytest.mark.parametrize("new", [Adam(0.01), NAdam(0.01), Adan(0.01)], ids=["adam", "nadam", "adan"])
def test_averages_go_together_with_the_counter_or_not_at_all(export, new):
    old = replace(export(Lion(0.01)), state=trained(export(Lion(0.01)), BATCHES[:3]))
    result = old.with_optimizer(new)
    assert result.kept == {}
    assert "optimizer.step" in result.started
    assert result.bundle.state["optimizer.step"] == 0
    assert not result.bundle.state["optimizer.exp_avg.last.bias"].any()
    for name in WEIGHTS:
        np.testing.assert_array_equal(result.bundle.state[name], old.state[name])


def test_everything_of_one_class_goes_on(export):
    groups: OptimizerLike = [Group("*.bias", optimizer=NAdam(0.1), name="biases"), Adan(0.01)]
    old = replace(export(groups), state=trained(export(groups), BATCHES[:3]))
    new = old.with_optimizer([Group("*.bias", optimizer=NAdam(0.5), name="others"), Adan(0.02)])
    assert not new.started
    assert not new.dropped
    for name, value in old.state.items():
        np.testing.assert_array_equal(new.bundle.state[name], value)


def test_a_new_bundle_is_saved_and_loaded(export, tmp_path):
    bundle = export(Curved(0.01)).with_optimizer(AdamW(0.01)).bundle
    assert not [spec for spec in bundle.manifest.accumulators if spec.slot]
    bundle.save(tmp_path / "new.edgeopt")
    assert Bundle.load(tmp_path / "new.edgeopt").manifest.producer["optimizer"] == "AdamW"


def test_random_numbers_and_statistics_of_the_model_stay(cases):
    case = cases["cnn"]

    class Dropping(nn.Sequential):
        pass

    module = Dropping(case.module(), nn.Dropout(0.5))
    settings: dict[str, Any] = {"loss": case.loss, "metrics": [Accuracy()], "seed": 3}
    old = edgeopt.export(module, case.example(), optimizer=SGD(0.01), **settings)
    changed, fresh = (
        old.with_optimizer(AdamW(0.01)).bundle,
        edgeopt.export(module, case.example(), optimizer=AdamW(0.01), **settings),
    )
    ours, theirs = changed.session(), fresh.session()
    for batch in case.batches([4, 4]):
        assert ours.step(batch) == pytest.approx(theirs.step(batch), rel=1e-5)
    for name, value in theirs.state().items():
        np.testing.assert_allclose(ours.state()[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("rule", [SophiaG(0.01), SophiaH(0.01), AdaHessian(0.01), AdaHessian(0.01, every=3)], ids=repr)
def test_nothing_is_left_of_the_passes_for_curvature(rule, forward_model):
    def export(optimizer):
        return Bundle.of(
            compose(
                forward_model(network, WEIGHTS, ("batch", 4)),
                loss=CrossEntropy(),
                optimizer=optimizer,
                metrics=[Accuracy()],
            )
        )

    old, fresh = export(rule), export(AdamW(0.01))
    batches = [{"x": batch["x"], "target": np.asarray([0, 2, 1, 1, 0])} for batch in BATCHES]
    result = replace(old, state=trained(old, batches[:3])).with_optimizer(AdamW(0.01))
    new = result.bundle
    assert set(new.manifest.accumulators) == set(fresh.manifest.accumulators)
    assert set(new.state) == set(fresh.state)
    for row, expected in zip(new.inspect().graphs, fresh.inspect().graphs, strict=True):
        signature, theirs = new.manifest.signatures[row.name], fresh.manifest.signatures[row.name]
        assert set(signature.inputs) == set(theirs.inputs)
        assert set(signature.outputs) == set(theirs.outputs)
        assert "If" not in row.operators
        # A constant of the passes may have the value of another, and stand in its place.
        counts, others = ({**graph.operators, "Constant": 0} for graph in (row, expected))
        assert counts == others
        assert row.functions == expected.functions
    sessions = [replace(bundle, state=fresh.state).session() for bundle in (new, fresh)]
    for batch in batches:
        ours, theirs = [session.step(batch) for session in sessions]
        assert ours == pytest.approx(theirs, rel=1e-12)


def test_what_measures_takes_a_new_export(export):
    with pytest.raises(SignatureError, match="measured in each batch"):
        export(SGD()).with_optimizer(Curved())
