"""Every rule in a bundle: with a parameter group, small parameters joined, saved and resumed."""

from __future__ import annotations

from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from edgeopt import Bundle, tracing
from edgeopt.losses import CrossEntropy
from edgeopt.optimizers import OPTIMIZERS, Group, GroupArrays, Optimizer
from edgeopt.tracing.subgraphs import all_nodes
from edgeopt.training import ForwardGraph, ForwardModel, compose

rng = np.random.default_rng(0)
WEIGHTS = {"weight": rng.normal(size=(4, 3)), "scale": rng.normal(size=4), "bias": rng.normal(size=3)}
BATCHES = [{"x": rng.normal(size=(5, 4)), "target": rng.integers(0, 3, 5)} for _ in range(4)]


@pytest.fixture(scope="module")
def model() -> ForwardModel:
    def graph() -> ForwardGraph:
        made = tracing.new_graph("forward")
        tracer = tracing.Tracer(made)
        x = tracer.input("x", np.float64, ("batch", 4))
        weight, scale, bias = (tracer.input(name, value.dtype, value.shape) for name, value in WEIGHTS.items())
        tracer.output((x * scale) @ weight + bias, "y")
        return ForwardGraph(tracing.new_model(made), ("x",), ("y",))

    return ForwardModel(graph(), graph(), WEIGHTS, {})


def loss_and_gradients(params: dict[str, Any], batch: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    inputs = batch["x"] * params["scale"]
    logits = inputs @ params["weight"] + params["bias"]
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(p)), batch["target"]]).mean()
    error = (p - np.eye(3)[batch["target"]]) / len(batch["x"])
    scale = ((error @ params["weight"].T) * batch["x"]).sum(0)
    return loss, {"weight": inputs.T @ error, "scale": scale, "bias": error.sum(0)}


def train_numpy(rule: Optimizer, groups: list[tuple[float, list[str]]]) -> dict[str, Any]:
    """The same training by the rule itself; groups are factors of the rate with the names of parameters."""
    params = {name: value.copy() for name, value in WEIGHTS.items()}
    states = {name: rule.init(value) for name, value in params.items()}
    shared = [rule.init_shared({name: params[name] for name in names}) for _, names in groups]
    numbers = {name: np.asarray(value) for name, value in rule.hyperparameters().items()}
    of_schedule = {name: np.asarray(value) for name, value in rule.schedule.hyperparameters().items()}
    for done, batch in enumerate(BATCHES):
        (loss, grads), step = loss_and_gradients(params, batch), np.asarray(done + 1)
        lr = rule.schedule(numpy_namespace, of_schedule, np.asarray(done))
        for place, (factor, names) in enumerate(groups):
            own, slopes = ({name: source[name] for name in names} for source in (params, grads))
            hyper = {**numbers, "lr": lr * factor}
            measured = dict.fromkeys(rule.shared_ingredients(own), loss)
            group = GroupArrays(own, slopes, states, {**shared[place], **measured})
            moved, slots, common = rule.update_all(numpy_namespace, group, hyper, step)
            params |= moved
            shared[place] = {**shared[place], **common}
            states |= {name: {**states[name], **slots[name]} for name in names}
    return {**params, **{f"optimizer.{slot}.{name}": states[name][slot] for name in states for slot in states[name]}}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_trains_resumes_and_follows_the_rule(name, model, tmp_path):
    rule = OPTIMIZERS[name]()
    bundle = Bundle.of(compose(model, loss=CrossEntropy(), optimizer=[Group("bias", lr_multiplier=0.5), rule]))
    session = bundle.session()
    for batch in BATCHES[:2]:
        session.step(batch)
    session.save(tmp_path / "half.edgeopt")
    resumed = Bundle.load(tmp_path / "half.edgeopt").session()
    for each in (session, resumed):
        each.step(BATCHES[2])
        each.accumulate(BATCHES[3])
        each.apply()
    state = session.state()
    for key, value in resumed.state().items():
        np.testing.assert_array_equal(state[key], value, err_msg=key)
    assert np.isfinite(session.evaluate(BATCHES[0])["loss"])
    if not rule.ingredients(WEIGHTS["weight"]):
        for key, value in train_numpy(rule, [(1.0, ["weight", "scale"]), (0.5, ["bias"])]).items():
            size = np.abs(value.astype(np.float64)).max()
            np.testing.assert_allclose(state[key], value, rtol=1e-7, atol=1e-9 * size, err_msg=key)


@pytest.mark.parametrize("name", ["muon", "shampoo"])
def test_updates_are_lowered_like_models(name, model):
    """In float64 ONNX Runtime 1.17 has no kernel for what it makes of a product with a transposed matrix."""
    bundle = Bundle.of(compose(model, loss=CrossEntropy(), optimizer=OPTIMIZERS[name]()))
    graph = bundle.graphs["step.onnx"]
    assert isinstance(graph, bytes)
    functions = ir.from_proto(onnx.load_from_string(graph)).functions.values()
    nodes = [node for function in functions for node in all_nodes(function.graph)]
    products = [node for node in nodes if node.op_type == "MatMul"]
    assert products
    for node in products:
        producers = [value.producer() for value in node.inputs if value is not None]
        assert not any(producer is not None and producer.op_type == "Transpose" for producer in producers)
