"""Parameters of a finished bundle frozen by another optimizer: as if it had been exported so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from edgeopt import Bundle
from edgeopt.errors import ParameterPatternError, SignatureError
from edgeopt.losses import MSE
from edgeopt.optimizers import SGD, AdamW, Group, Lion, OptimizerLike, ScheduleFreeSGD, SophiaH
from edgeopt.training import compose
from edgeopt.transforms import ClipByGlobalNorm, ClipByValue, Transform

rng = np.random.default_rng(0)
WEIGHTS = {
    "embedding.weight": rng.normal(size=(4, 6)),
    "embedding.bias": rng.normal(size=6),
    "last.weight": rng.normal(size=(6, 3)),
    "last.bias": rng.normal(size=3),
}
BATCHES = [{"x": rng.normal(size=(5, 4)), "target": rng.normal(size=(5, 3))} for _ in range(6)]
FROZEN: dict[str, OptimizerLike] = {
    "first layer": [Group("embedding.*", frozen=True), AdamW(0.01)],
    "middle": [Group(("embedding.bias", "last.weight"), frozen=True), Group("last.*", lr_multiplier=0.5), AdamW(0.01)],
    "all but one": [Group(("embedding.*", "last.weight"), frozen=True), SGD(0.01, momentum=0.9)],
    "matrices": [Group(ndim=2, frozen=True), ScheduleFreeSGD(0.01)],
}


def network(p):
    hidden = p["x"] @ p["embedding.weight"] + p["embedding.bias"]
    return hidden * hidden @ p["last.weight"] + p["last.bias"]


@dataclass(frozen=True)
class Half(Transform):
    """Treats each gradient by itself, and reads the parameter."""

    def hyperparameters(self) -> dict[str, float]:
        return {"share": 0.5}

    def __call__(self, xp: Any, grads: Sequence[Any], params: Sequence[Any], hyper: Any, step: Any) -> Any:
        pairs = zip(grads, params, strict=True)
        return [g * xp.astype(hyper["share"], g.dtype) + 0.1 * p for g, p in pairs], {}


@dataclass(frozen=True)
class LargestFirst(Transform):
    """Combines the gradients, in a way that is the user's own."""

    def hyperparameters(self) -> dict[str, float]:
        return {}

    def __call__(self, xp: Any, grads: Sequence[Any], params: Sequence[Any], hyper: Any, step: Any) -> Any:
        largest = xp.max(xp.stack([xp.max(xp.abs(g)) for g in grads]))
        return [g / largest for g in grads], {"largest": largest}


TRANSFORMS: dict[str, tuple[Transform, ...]] = {
    "none": (),
    "norm": (ClipByGlobalNorm(0.5),),
    "several": (ClipByValue(0.4), ClipByGlobalNorm(0.5), Half(), ClipByGlobalNorm(0.2)),
}


@pytest.fixture(scope="module")
def export(forward_model) -> Callable[..., Bundle]:
    def make(optimizer: OptimizerLike, weights: Any = WEIGHTS, **settings: Any) -> Bundle:
        return Bundle.of(
            compose(forward_model(network, weights, ("batch", 4)), loss=MSE(), optimizer=optimizer, **settings)
        )

    return make


def trained(bundle: Bundle) -> Bundle:
    session = bundle.session()
    for batch in BATCHES[:2]:
        session.step(batch)
    return Bundle(bundle.manifest, bundle.graphs, session.state())


def nodes(bundle: Bundle, name: str) -> dict[str, int]:
    """How often each operator occurs, bodies of functions and branches included."""
    counts: dict[str, int] = {}
    model = onnx.load_from_string(bundle.contents().graphs[f"{name}.onnx"])
    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
        waiting += [inner for attribute in node.attribute for inner in attribute.g.node]
    # Reshapes and constants between parts differ by where they stand.
    return {key: count for key, count in counts.items() if key not in ("Constant", "Identity", "Reshape")}


@pytest.mark.parametrize(
    ("old", "combination"),
    [(Lion(0.01), "none"), (Lion(0.01), "norm"), (Lion(0.01), "several"), (SophiaH(0.01), "several")],
    ids=["alone", "norm", "several", "curvature"],
)
@pytest.mark.parametrize("new", FROZEN.values(), ids=FROZEN)
def test_trains_like_a_fresh_export(export, old, combination, new):
    transforms = TRANSFORMS[combination]
    before = trained(export(old, transforms=transforms))
    changed = before.with_optimizer(new).bundle
    weights = {name: before.state[name] for name in WEIGHTS}
    fresh = export(new, weights, transforms=transforms)
    assert set(changed.manifest.tensors) == set(fresh.manifest.tensors)
    assert set(changed.manifest.accumulators) == set(fresh.manifest.accumulators)
    for name in ("step", "accumulate", "apply"):
        assert nodes(changed, name) == nodes(fresh, name)
    # What goes on of the old rule's state is another matter.
    for name, value in weights.items():
        np.testing.assert_array_equal(changed.state[name], value)
    sessions = [Bundle(changed.manifest, changed.graphs, fresh.state).session(), fresh.session()]
    for batch in BATCHES[2:]:
        ours, theirs = [session.step(batch) for session in sessions]
        assert ours == pytest.approx(theirs, rel=1e-12)
    for session in sessions:
        session.accumulate(BATCHES[0])
        session.accumulate(BATCHES[1])
    ours, theirs = [session.apply() for session in sessions]
    assert ours == pytest.approx(theirs, rel=1e-12)
    for spec in fresh.manifest.tensors:
        ours, theirs = [session.state()[spec.name] for session in sessions]
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-13, err_msg=spec.name)
        if spec.role == "parameter" and not spec.trainable:
            np.testing.assert_array_equal(ours, before.state[spec.name])


def test_what_is_frozen_is_not_differentiated(export):
    """The first layer's matrix product has two factors; only the gradient of a layer behind it may be computed."""
    old = export(AdamW(0.01), transforms=[ClipByGlobalNorm(1.0)])
    new = old.with_optimizer([Group("embedding.*", frozen=True), AdamW(0.01)])
    for name in ("step", "accumulate"):
        products = [
            sum(nodes(bundle, name).get(kind, 0) for kind in ("MatMul", "Gemm")) for bundle in (old, new.bundle)
        ]
        assert products[0] - products[1] == 2
    assert {spec.name for spec in new.bundle.manifest.tensors if spec.trainable} == {"last.weight", "last.bias"}
    assert set(new.dropped) == {
        f"optimizer.{slot}.embedding.{kind}" for slot in ("exp_avg", "exp_avg_sq") for kind in ("weight", "bias")
    }
    assert new.kept["optimizer.exp_avg.last.bias"] == "optimizer.exp_avg.last.bias"


def test_frozen_step_by_step(export, tmp_path):
    """Freezing goes on from where freezing left off, and what is frozen is no longer there to be matched."""
    first = trained(export(AdamW(0.01))).with_optimizer([Group("embedding.weight", frozen=True), AdamW(0.01)]).bundle
    second = trained(first).with_optimizer([Group("*.bias", frozen=True), AdamW(0.01)]).bundle
    second.save(tmp_path / "new.edgeopt")
    session = Bundle.load(tmp_path / "new.edgeopt").session()
    before = session.state()
    session.step(BATCHES[0])
    session.accumulate(BATCHES[1])
    session.apply()
    moved = {name for name in WEIGHTS if not np.array_equal(before[name], session.state()[name])}
    assert moved == {"last.weight"}
    with pytest.raises(ParameterPatternError, match="embedding"):
        second.with_optimizer([Group("embedding.*", frozen=True), AdamW(0.01)])
    with pytest.raises(ParameterPatternError, match="all of them are in frozen groups"):
        second.with_optimizer([Group("*", frozen=True), AdamW(0.01)])


@pytest.mark.parametrize(("method", "options"), [("newton_cg", {}), ("lbfgs", {"max_iter": 3})])
def test_minimizing_moves_only_what_is_trained(export, method, options):
    old = export(AdamW(0.01), hessian_vector=True)
    new: OptimizerLike = [Group("embedding.*", frozen=True), SGD(0.01)]
    changed, fresh = old.with_optimizer(new).bundle, export(new, hessian_vector=True)
    signatures = [bundle.manifest.signatures["hessian_vector"] for bundle in (changed, fresh)]
    vectors = [{port for port in signature.inputs if port.kind == "vector"} for signature in signatures]
    assert vectors[0] == vectors[1]
    sessions = [changed.session(), fresh.session()]
    for session in sessions:
        session.minimize(BATCHES[0], method, **options)
    for name, value in sessions[1].parameters().items():
        np.testing.assert_allclose(sessions[0].parameters()[name], value, rtol=1e-8, err_msg=name)
    np.testing.assert_array_equal(sessions[0].parameters()["embedding.weight"], WEIGHTS["embedding.weight"])


def test_accumulated_gradients_go_on(export, tmp_path):
    session = export(AdamW(0.01)).session()
    session.accumulate(BATCHES[0])
    session.save(tmp_path / "half.edgeopt")
    new: OptimizerLike = [Group("embedding.*", frozen=True), SGD(0.01)]
    ours, theirs = Bundle.load(tmp_path / "half.edgeopt").with_optimizer(new).bundle.session(), export(new).session()
    theirs.accumulate(BATCHES[0])
    for each in (ours, theirs):
        each.accumulate(BATCHES[1])
        each.apply()
    for name, value in theirs.parameters().items():
        np.testing.assert_allclose(ours.parameters()[name], value, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_narrow_numbers_have_wide_sums(export, dtype):
    """Casts stand before the accumulators. No graph runs here: not every provider multiplies bfloat16."""
    weights, new = {name: value.astype(dtype) for name, value in WEIGHTS.items()}, FROZEN["middle"]
    changed, fresh = export(Lion(0.01), weights).with_optimizer(new).bundle, export(new, weights)
    assert set(changed.manifest.accumulators) == set(fresh.manifest.accumulators)
    for name in ("step", "accumulate", "apply"):
        assert nodes(changed, name) == nodes(fresh, name)


def test_narrow_numbers_train_as_in_a_fresh_export(export):
    weights = {name: value.astype(np.float16) for name, value in WEIGHTS.items()}
    changed = export(Lion(0.01), weights).with_optimizer(FROZEN["middle"]).bundle
    fresh = export(FROZEN["middle"], weights)
    sessions = [replace(changed, state=fresh.state).session(), fresh.session()]
    for session in sessions:
        session.accumulate({key: value.astype(np.float16) for key, value in BATCHES[0].items()})
        session.apply()
    for name, value in sessions[1].parameters().items():
        np.testing.assert_array_equal(sessions[0].parameters()[name], value, err_msg=name)


def test_a_transform_that_combines_gradients_in_its_own_way_is_refused(export):
    bundle = export(AdamW(0.01), transforms=[LargestFirst()])
    with pytest.raises(SignatureError, match="LargestFirst combines the gradients"):
        bundle.with_optimizer([Group("embedding.*", frozen=True), AdamW(0.01)])
    assert bundle.with_optimizer(SGD(0.01)).bundle.session().step(BATCHES[0])["largest"] > 0
