"""From every rule to AdamW, and from AdamW to every rule: predictions stay, and training goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeopt import Bundle
from edgeopt.errors import SignatureError
from edgeopt.losses import CrossEntropy
from edgeopt.optimizers import OPTIMIZERS, AdamW, Group, Measurement, OptimizerLike
from edgeopt.training import ForwardModel, compose

rng = np.random.default_rng(0)
WEIGHTS = {"weight": rng.normal(size=(4, 3)), "scale": rng.normal(size=4), "bias": rng.normal(size=3)}
BATCHES = [{"x": rng.normal(size=(5, 4)), "target": rng.integers(0, 3, 5)} for _ in range(3)]
STARTED: OptimizerLike = [Group("bias", lr_multiplier=0.5), AdamW(0.01)]


@pytest.fixture(scope="module")
def model(forward_model) -> ForwardModel:
    return forward_model(lambda p: (p["x"] * p["scale"]) @ p["weight"] + p["bias"], WEIGHTS, ("batch", 4))


@pytest.fixture(scope="module")
def adamw(model) -> Bundle:
    return trained(Bundle.of(compose(model, loss=CrossEntropy(), optimizer=STARTED)))


def trained(bundle: Bundle) -> Bundle:
    session = bundle.session()
    for batch in BATCHES:
        assert np.isfinite(session.step(batch)["loss"])
    return Bundle(bundle.manifest, bundle.graphs, session.state())


def check(old: Bundle, optimizer: OptimizerLike, path: Path) -> None:
    result = old.with_optimizer(optimizer)
    x, session = BATCHES[0]["x"], result.bundle.session()
    ours, theirs = (np.asarray(each.predict(x)) for each in (session, old.session()))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    names = {*result.kept, *result.started, *WEIGHTS, "random.seed", "random.draws"}
    assert names == set(result.bundle.state) == {spec.name for spec in result.bundle.manifest.tensors}
    for batch in BATCHES:
        assert np.isfinite(session.step(batch)["loss"])
    session.accumulate(BATCHES[0])
    session.apply()
    session.save(path)
    ours, theirs = (np.asarray(each.predict(x)) for each in (session, Bundle.load(path).session()))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "sofo"])
def test_from_every_rule(name, model, tmp_path):
    old = trained(Bundle.of(compose(model, loss=CrossEntropy(), optimizer=OPTIMIZERS[name]())))
    check(old, STARTED, tmp_path / "new.edgeopt")


def test_a_rule_without_gradients_leaves_none(model):
    old = Bundle.of(compose(model, loss=CrossEntropy(), optimizer=OPTIMIZERS["sofo"]()))
    with pytest.raises(SignatureError, match=r"step.onnx computes no gradient of bias, scale, weight"):
        old.with_optimizer(STARTED)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_to_every_rule(name, adamw, tmp_path):
    rule = OPTIMIZERS[name]()
    needs = [*rule.ingredients(WEIGHTS["weight"]).values(), *rule.shared_ingredients(WEIGHTS).values()]
    if any(isinstance(need, Measurement) for need in needs):
        with pytest.raises(SignatureError, match="measured in each batch"):
            adamw.with_optimizer(rule)
    else:
        check(adamw, rule, tmp_path / "new.edgeopt")
