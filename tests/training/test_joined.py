"""Small parameters updated together: the same numbers, names and files as one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from edgeopt import Bundle
from edgeopt.errors import SignatureError
from edgeopt.losses import MSE
from edgeopt.optimizers import Adam, AdamW, Group, Lookahead, NAdam, Normal, OptimizerLike
from edgeopt.training import compose
from edgeopt.transforms import ClipByGlobalNorm

rng = np.random.default_rng(0)
WEIGHTS = {
    "first.weight": rng.normal(size=(4, 6)),
    "first.bias": rng.normal(size=6),
    "scale": np.asarray(1.5),
    "last.weight": rng.normal(size=(6, 300)),
    "last.bias": rng.normal(size=300),
}
BATCHES = [{"x": rng.normal(size=(5, 4)), "target": rng.normal(size=(5, 300))} for _ in range(4)]


def network(p):
    hidden = p["x"] @ p["first.weight"] + p["first.bias"]
    return hidden * hidden * p["scale"] @ p["last.weight"] + p["last.bias"]


@pytest.fixture(scope="module")
def export(forward_model) -> Callable[..., Bundle]:
    def make(optimizer: OptimizerLike, joined_size: int, **settings: Any) -> Bundle:
        model = forward_model(network, WEIGHTS, ("batch", 4))
        return Bundle.of(compose(model, loss=MSE(), optimizer=optimizer, joined_size=joined_size, **settings))

    return make


OPTIMIZERS: dict[str, OptimizerLike] = {
    "adam": Adam(0.01, amsgrad=True),
    "scalar slots": NAdam(0.01),
    "a wrapper": Lookahead(Adam(0.01), k=2),
    "groups": [Group("first.*", lr_multiplier=0.5), Group("*.bias", weight_decay=0.0), AdamW(0.01)],
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("transforms", [(), (ClipByGlobalNorm(0.5),)], ids=["plain", "clipped"])
def test_joined_parameters_train_as_single_ones(export, optimizer, transforms):
    sessions = [export(optimizer, size, transforms=transforms).session() for size in (0, 400)]
    for batch in BATCHES[:2]:
        for session in sessions:
            session.step(batch)
    for batch in BATCHES[2:]:
        for session in sessions:
            for part in (slice(0, 2), slice(2, 5)):
                session.accumulate({key: value[part] for key, value in batch.items()})
            session.apply()
    alone, together = (session.state() for session in sessions)
    assert alone.keys() == together.keys()
    for name, value in alone.items():
        np.testing.assert_allclose(together[name], value, rtol=1e-12, atol=1e-15, err_msg=name)


def test_only_small_parameters_are_joined(export):
    bundle = export(Adam(0.01), 400)
    (step,) = [entry for entry in bundle.manifest.joined if entry.name == "optimizer.exp_avg.joined"]
    assert step.members == tuple(f"optimizer.exp_avg.{name}" for name in WEIGHTS if name != "last.weight")
    names = {port.name for port in bundle.manifest.signatures["step"].inputs}
    assert {"optimizer.exp_avg.joined", "optimizer.exp_avg.last.weight", "first.bias"} <= names
    assert "optimizer.exp_avg.first.bias" not in names
    few, many = (
        len(onnx.load_from_string(export(Adam(0.01), size).contents().graphs["apply.onnx"]).functions[0].node)
        for size in (400, 0)
    )
    assert few < many


def test_state_goes_by_the_names_of_parameters(export, tmp_path):
    """A checkpoint of the one continues in the other, bit for bit in the same graphs."""
    joined, single = export(Adam(0.01), 400), export(Adam(0.01), 0)
    session = joined.session()
    for batch in BATCHES[:2]:
        session.step(batch)
    session.accumulate(BATCHES[2])
    session.save(tmp_path / "joined.edgeopt")
    saved = Bundle.load(tmp_path / "joined.edgeopt")
    assert "accumulator.first.bias" in saved.state
    assert not [name for name in saved.state if "joined" in name]

    resumed, moved = saved.session(), replace(single, state=saved.state).session()
    for each in (session, resumed, moved):
        each.apply()
        each.step(BATCHES[3])
    for name, value in session.state().items():
        np.testing.assert_array_equal(resumed.state()[name], value, err_msg=name)
        np.testing.assert_allclose(moved.state()[name], value, rtol=1e-12, atol=1e-15, err_msg=name)


def test_parameters_may_be_replaced_meanwhile(export):
    session = export(Adam(0.01), 400).session()
    session.step(BATCHES[0])
    session.load_parameters({"first.bias": np.zeros(6)})
    assert not session.parameters()["first.bias"].any()
    assert session.state()["optimizer.exp_avg.first.bias"].any()


def test_names_that_meet_are_refused(forward_model):
    weights = {"a": np.ones(2), "b": np.ones(2), "joined": np.ones((20, 2))}
    model = forward_model(lambda p: (p["x"] * p["a"] + p["b"]) @ xp_transpose(p["joined"]), weights, ("batch", 2))
    with pytest.raises(SignatureError, match=r"optimizer\.exp_avg\.joined"):
        Bundle.of(compose(model, loss=MSE(), optimizer=Adam(), joined_size=4))


def xp_transpose(array):
    return array.tracer.emit("Transpose", array, perm=[1, 0])


class Noisy(Adam):
    def ingredients(self, param):
        return {"noise": Normal()}

    def update(self, xp, param, grad, state, hyper, step):
        param, slots = super().update(xp, param, grad, state, hyper, step)
        return param + state["noise"], slots


def test_noise_is_drawn_for_all_members_at_once(export):
    session = export(Noisy(0.0), 400).session()
    before = session.parameters()
    session.step(BATCHES[0])
    moved = {name: (after - before[name]).reshape(-1) for name, after in session.parameters().items()}
    assert len({float(value) for change in moved.values() for value in change}) > 2100


def test_a_joined_vector_stays_short(forward_model):
    weights = {f"w{place}": np.ones(9_000) for place in range(5)}
    model = forward_model(lambda p: p["x"] * p["w0"] * p["w1"] + p["w2"] * p["w3"] + p["w4"], weights, ("batch", 9_000))
    bundle = Bundle.of(compose(model, loss=MSE(), optimizer=Adam()))
    joined = {
        entry.name: entry.members for entry in bundle.manifest.joined if entry.name.startswith("optimizer.exp_avg.")
    }
    assert joined == {
        "optimizer.exp_avg.joined.0": tuple(f"optimizer.exp_avg.w{place}" for place in (0, 1, 2)),
        "optimizer.exp_avg.joined.1": tuple(f"optimizer.exp_avg.w{place}" for place in (3, 4)),
    }
    metrics = bundle.session().step({"x": np.ones((2, 9_000)), "target": np.zeros((2, 9_000))})
    assert metrics["loss"] == 9.0


def test_very_many_vectors_are_clipped_together(forward_model):
    """More than onnx is told of when it infers the shapes of a Split's results by itself."""
    vectors = {f"shift_{place}": rng.normal(size=3) for place in range(70)}

    def shifted(p):
        total = p["x"]
        for name in vectors:
            total = total + p[name]
        return total

    def train(joined_size):
        model = forward_model(shifted, vectors, ("batch", 3))
        settings: dict[str, Any] = {"loss": MSE(), "optimizer": AdamW(0.1), "transforms": [ClipByGlobalNorm(0.1)]}
        session = Bundle.of(compose(model, **settings, joined_size=joined_size)).session()
        batch = {"x": BATCHES[0]["x"][:, :3], "target": BATCHES[0]["target"][:, :3]}
        session.accumulate(batch)
        session.apply()
        session.step(batch)
        return session.parameters()

    together, alone = train(64), train(0)
    for name in vectors:
        np.testing.assert_allclose(together[name], alone[name], rtol=1e-12)
