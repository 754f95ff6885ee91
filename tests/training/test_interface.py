"""What the training package gives to rules beside gradients: shared state, random numbers, measurements, a view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest

from edgeopt import tracing
from edgeopt.bundle import Bundle
from edgeopt.errors import SignatureError
from edgeopt.losses import MSE, CrossEntropy
from edgeopt.optimizers import (
    SGD,
    Collective,
    GaussNewtonBartlett,
    HutchinsonDiagonal,
    Ingredient,
    Lookahead,
    Normal,
    Rademacher,
    Rule,
    Uniform,
)
from edgeopt.training import compose


@dataclass(frozen=True)
class Recorder(Rule):
    """Descends, and keeps the last value of everything it asked for in slots of the same names."""

    lr: float = 0.1
    wants: Mapping[str, Ingredient] = field(default_factory=dict)

    def init(self, param):
        sizes = {name: getattr(kind, "shape", None) for name, kind in self.wants.items()}
        return {f"last_{name}": np.zeros(param.shape if s is None else s, param.dtype) for name, s in sizes.items()}

    def ingredients(self, param):
        return dict(self.wants)

    def update(self, xp, param, grad, state, hyper, step):
        return param - xp.astype(hyper["lr"], param.dtype) * grad, {f"last_{n}": state[n] for n in self.wants}


@dataclass(frozen=True)
class Normalized(Collective, Rule):
    """Divides by the norm of the whole gradient, and keeps its largest value; `x0` never changes."""

    def init(self, param):
        return {"x0": param.copy()}

    def init_shared(self, params):
        return {"largest": np.zeros((), np.float32), "count": np.asarray(len(params), np.int64)}

    def update_all(self, xp, group, hyper, step):
        params, grads, states, shared = group
        norm = xp.sqrt(sum(xp.sum(xp.square(grad)) for grad in grads.values()))
        rate = xp.astype(hyper["lr"], norm.dtype) / norm
        moved = {name: param - rate * grads[name] for name, param in params.items()}
        slots = {name: {"x0": states[name]["x0"]} for name in params}
        return moved, slots, {"largest": xp.maximum(shared["largest"], norm), "count": shared["count"]}


@dataclass(frozen=True)
class Averaged(Rule):
    """Shows the mean of the iterates."""

    def init(self, param):
        return {"total": np.zeros_like(param)}

    def update(self, xp, param, grad, state, hyper, step):
        param = param - xp.astype(hyper["lr"], param.dtype) * grad
        return param, {"total": state["total"] + param}

    def view(self, xp, param, state, hyper, step):
        count = xp.astype(xp.maximum(step, xp.ones_like(step)), param.dtype)
        return xp.where(step > 0, state["total"] / count, param)


def predicted(session, x):
    output = session.predict(x)
    assert isinstance(output, np.ndarray)
    return output


def scaled(x):
    return x["x"] * x["w"] + x["b"]


WEIGHTS = {"w": np.array([1.0, -2.0, 0.5, 3.0], np.float32), "b": np.zeros(4, np.float32)}


def batches(count: int, size: int = 6) -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)
    draw = rng.normal(size=(2, count, size, 4)).astype(np.float32)
    return [{"x": x, "target": y} for x, y in zip(*draw, strict=True)]


def test_shared_state_and_slots_that_stay(forward_model):
    bundle = Bundle.of(compose(forward_model(scaled, WEIGHTS, ("batch", 4)), loss=MSE(), optimizer=Normalized(0.1)))
    written = {port.tensor for port in bundle.manifest.signatures["step"].outputs}
    assert "optimizer.largest" in written
    assert not {"optimizer.count", "optimizer.x0.w"} & written
    session, params, largest = bundle.session(), dict(WEIGHTS), 0.0
    for batch in batches(3):
        error = 2.0 * (params["w"] * batch["x"] + params["b"] - batch["target"]) / batch["x"].size
        grads = {"w": (error * batch["x"]).sum(0), "b": error.sum(0)}
        norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
        params, largest = {k: params[k] - 0.1 / norm * grads[k] for k in params}, max(largest, norm)
        session.step(batch)
    for name, value in params.items():
        np.testing.assert_allclose(session.parameters()[name], value, rtol=1e-5)
    state = session.state()
    np.testing.assert_allclose(state["optimizer.largest"], largest, rtol=1e-5)
    np.testing.assert_array_equal(state["optimizer.x0.w"], WEIGHTS["w"])
    assert state["optimizer.count"] == 2


@pytest.mark.parametrize("wrap", [lambda rule: rule, Lookahead], ids=["plain", "lookahead"])
def test_evaluation_and_prediction_see_the_view(forward_model, tmp_path, wrap):
    rule = wrap(Averaged(0.1))
    session = Bundle.of(compose(forward_model(scaled, WEIGHTS, ("batch", 4)), loss=MSE(), optimizer=rule)).session()
    batch = batches(1)[0]
    np.testing.assert_allclose(predicted(session, batch["x"]), scaled({**WEIGHTS, **batch}), rtol=1e-6)
    seen = []
    for each in batches(4):
        session.step(each)
        seen.append(session.parameters())
    mean = {name: np.mean([step[name] for step in seen], axis=0) for name in WEIGHTS}
    expected = scaled({**mean, **batch})
    np.testing.assert_allclose(predicted(session, batch["x"]), expected, rtol=1e-5)
    loss = session.evaluate(batch)["loss"]
    np.testing.assert_allclose(loss, np.mean((expected - batch["target"]) ** 2), rtol=1e-5)
    session.export_inference(tmp_path / "model.onnx")
    inputs = onnx.load(tmp_path / "model.onnx").graph.input
    assert [value.name for value in inputs] == ["x"]


def test_rules_without_a_view_read_no_optimizer_state(forward_model):
    bundle = Bundle.of(
        compose(forward_model(scaled, WEIGHTS, ("batch", 4)), loss=MSE(), optimizer=SGD(0.1, momentum=0.9))
    )
    assert {port.name for port in bundle.manifest.signatures["predict"].inputs} == {"x", "w", "b"}


def test_noise_is_drawn_anew_each_time_and_for_each_parameter(forward_model):
    wants = {"normal": Normal(), "uniform": Uniform((50, 40)), "sign": Rademacher()}
    weights = {name: np.zeros(2000, np.float32) for name in ("w", "b")}
    model = forward_model(lambda x: x["x"] * x["w"] + x["b"], weights, ("batch", 2000))
    session = Bundle.of(compose(model, loss=MSE(), optimizer=Recorder(wants=wants), seed=5)).session()
    drawn = []
    for _ in range(2):
        session.step({"x": np.ones((1, 2000), np.float32), "target": np.ones((1, 2000), np.float32)})
        state = session.state()
        drawn += [{name: state[f"optimizer.last_{name}.{key}"] for name in wants} for key in weights]
    for numbers in drawn:
        assert abs(numbers["normal"].mean()) < 0.1
        assert abs(numbers["normal"].std() - 1.0) < 0.06
        assert numbers["uniform"].shape == (50, 40)
        assert abs(numbers["uniform"].mean() - 0.5) < 0.03
        assert numbers["uniform"].min() >= 0.0
        assert numbers["uniform"].max() < 1.0
        assert set(np.unique(numbers["sign"])) == {-1.0, 1.0}
        assert abs(numbers["sign"].mean()) < 0.1
    for first in range(4):
        for second in range(first):
            assert abs(np.corrcoef(drawn[first]["normal"], drawn[second]["normal"])[0, 1]) < 0.1


@pytest.mark.parametrize("accumulated", [False, True], ids=["step", "accumulate"])
def test_hutchinsons_diagonal_is_exact_where_the_hessian_is_diagonal(forward_model, accumulated):
    weights = {"w": WEIGHTS["w"], "other": np.ones(2, np.float32)}
    # The second one has a part in the loss, and none in its gradient.
    model = forward_model(lambda x: x["x"] * x["w"] * x["w"] + 0.0 * tracing.sum(x["other"]), weights, ("batch", 4))
    bundle = Bundle.of(compose(model, loss=MSE(), optimizer=Recorder(wants={"hessian": HutchinsonDiagonal(every=2)})))
    assert any(node.op_type == "If" for node in onnx.load_from_string(bundle.contents().graphs["step.onnx"]).graph.node)
    session = bundle.session()
    for number, batch in enumerate(batches(3)):
        w = session.parameters()["w"]
        x, y = batch["x"].astype(np.float64), batch["target"]
        # d²/dw² of mean (x w² - y)²
        expected = np.sum(12 * x**2 * w**2 - 4 * x * y, axis=0) / x.size
        if accumulated:
            for part in (slice(0, 2), slice(2, 6)):
                session.accumulate({key: value[part] for key, value in batch.items()})
            session.apply()
        else:
            session.step(batch)
        state = session.state()
        np.testing.assert_allclose(
            state["optimizer.last_hessian.w"], expected if number % 2 == 0 else np.zeros(4), rtol=1e-4
        )
        np.testing.assert_array_equal(state["optimizer.last_hessian.other"], np.zeros(2))


def test_hutchinson_couples_parameters(forward_model):
    """With loss a·b the Hessian is [[0, 1], [1, 0]], so z ⊙ Hz is the product of the two signs for both."""
    weights = {name: np.ones(1, np.float32) for name in ("a", "b")}
    model = forward_model(lambda x: x["x"] * x["a"] * x["b"], weights, ("batch", 1))
    session = Bundle.of(
        compose(model, loss=MSE(), optimizer=Recorder(0.0, wants={"hessian": HutchinsonDiagonal()}))
    ).session()
    seen = set()
    for _ in range(12):
        # (x a b - y)² has the mixed derivative 4abx² - 2xy = 2 and the pure ones 2x² = 2
        session.step({"x": np.ones((1, 1), np.float32), "target": np.ones((1, 1), np.float32)})
        state = session.state()
        assert state["optimizer.last_hessian.a"] == state["optimizer.last_hessian.b"]
        seen.add(float(state["optimizer.last_hessian.a"][0]))
    assert seen == {0.0, 4.0}


def logits(x):
    return x["x"] @ x["w"]


@pytest.mark.parametrize("accumulated", [False, True], ids=["step", "accumulate"])
def test_gauss_newton_bartlett_has_the_gauss_newton_diagonal_as_its_mean(forward_model, accumulated):
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(2, 3)).astype(np.float32), rng.normal(size=(5, 2)).astype(np.float32)
    target = np.array([0, 1, 2, -100, 1])
    session = Bundle.of(
        compose(
            forward_model(logits, {"w": w}, ("batch", 2)),
            loss=CrossEntropy(),
            optimizer=Recorder(0.0, wants={"hessian": GaussNewtonBartlett()}),
        )
    ).session()
    p = np.exp(x @ w) / np.exp(x @ w).sum(1, keepdims=True)
    counted = target >= 0
    expected = np.einsum("ni,nc->ic", x[counted] ** 2, (p * (1 - p))[counted]) / counted.sum()
    estimates = []
    for _ in range(400):
        if accumulated:
            for part in (slice(0, 2), slice(2, 5)):
                session.accumulate({"x": x[part], "target": target[part]})
            session.apply()
        else:
            session.step({"x": x, "target": target})
        estimates.append(session.state()["optimizer.last_hessian.w"])
    error = np.std(estimates, axis=0) / np.sqrt(len(estimates))
    assert np.all(np.abs(np.mean(estimates, axis=0) - expected) < 4 * error)


@pytest.mark.parametrize("loss", [MSE(), CrossEntropy(weight=(1.0, 2.0, 3.0))], ids=["mse", "weighted"])
def test_gauss_newton_bartlett_needs_a_plain_softmax(forward_model, loss):
    model = forward_model(logits, {"w": np.ones((2, 3), np.float32)}, ("batch", 2))
    with pytest.raises(SignatureError, match="CrossEntropy without class weights"):
        Bundle.of(compose(model, loss=loss, optimizer=Recorder(wants={"hessian": GaussNewtonBartlett()})))


def test_fixed_numbers_are_on_the_fused_node(forward_model):
    model = forward_model(scaled, WEIGHTS, ("batch", 4))
    bundle = Bundle.of(compose(model, loss=MSE(), optimizer=Lookahead(SGD(0.1, momentum=0.9, nesterov=True), k=7)))
    nodes = onnx.load_from_string(bundle.contents().graphs["step.onnx"]).graph.node
    (node,) = [node for node in nodes if node.op_type == "Lookahead"]
    flags = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    assert flags["k"] == 7
    assert flags["inner"] == b"SGD"
    assert flags["inner_nesterov"] == 1
