"""The training operators of ONNX (`ai.onnx.preview.training`): values it ships, and its reference over several steps.

Our rules are these operators under other names. Their T counts the updates done, our `step` the one being made. The one
difference in meaning is Adam at T = 0, which ONNX leaves without bias correction; there the learning rate has the
correction of our first step divided out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import array_api_compat.numpy
import numpy as np
import onnx
import onnx.backend.test.case.node
import onnx.reference
import pytest

from edgeopt.optimizers import SGD, Adagrad, Adam, Optimizer

xp: Any = array_api_compat.numpy
DOMAIN = "ai.onnx.preview.training"
# The names of our slots in the order in which each operator takes them.
SLOTS = {"Adam": ["exp_avg", "exp_avg_sq"], "Adagrad": ["sum"], "Momentum": ["momentum_buffer"]}

Settings = dict[str, Any]


def adam(how: Settings, rate: float, done: int) -> tuple[Optimizer, int]:
    beta1, beta2 = how["alpha"], how["beta"]
    lr = rate if done else rate * (1 - beta1) / np.sqrt(1 - beta2)
    decay = how.get("norm_coefficient", 0.0)
    # Older releases of onnx forget to give one node the number that its values were made with.
    eps = how.get("epsilon", 1e-2)
    return Adam(lr, beta1=beta1, beta2=beta2, eps=eps, eps_hat=True, weight_decay=decay), max(done, 1)


def adagrad(how: Settings, rate: float, done: int) -> tuple[Optimizer, int]:
    decay = how.get("norm_coefficient", 0.0)
    rule = Adagrad(rate, lr_decay=how.get("decay_factor", 0.0), eps=how["epsilon"], weight_decay=decay)
    return rule, done + 1


def momentum(how: Settings, rate: float, done: int) -> tuple[Optimizer, int]:
    nesterov = how["mode"] in ("nesterov", b"nesterov")
    decay, dampening = how["norm_coefficient"], 1 - how["beta"]
    rule = SGD(rate, momentum=how["alpha"], dampening=dampening, nesterov=nesterov, weight_decay=decay)
    return rule, done + 1


RULES = {"Adam": adam, "Adagrad": adagrad, "Momentum": momentum}


def settings(node: onnx.NodeProto) -> Settings:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def update(node: onnx.NodeProto, inputs: list[Any]) -> list[Any]:
    """What our rule makes of the operator's inputs: R, T, parameters, gradients, slots; in the order of its outputs."""
    slots = SLOTS[node.op_type]
    rate, done, *tensors = inputs
    rule, step = RULES[node.op_type](settings(node), float(rate), int(done))
    count = len(tensors) // (2 + len(slots))
    columns = []
    for i in range(count):
        param, grad, *state = tensors[i::count]
        hyper = {name: xp.asarray(value) for name, value in rule.hyperparameters().items()}
        hyper["lr"] = xp.asarray(rule.schedule.hyperparameters()["lr"])
        moved, after = rule.update(xp, param, grad, dict(zip(slots, state, strict=True)), hyper, xp.asarray(step))
        columns.append([moved, *(after[slot] for slot in slots)])
    return [column[row] for row in range(1 + len(slots)) for column in columns]


@pytest.fixture(scope="module")
def shipped() -> list[Any]:
    """The cases of these operators. Other ones that come with them warn of infinities they compute on purpose."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        cases = onnx.backend.test.case.node.collect_testcases(None)
    return [case for case in cases if case.model is not None and case.model.graph.node[0].domain == DOMAIN]


def test_every_operator_has_a_case(shipped: list[Any]) -> None:
    assert {case.model.graph.node[0].op_type for case in shipped} == set(RULES)


def test_values_that_onnx_ships(shipped: list[Any]) -> None:
    for case in shipped:
        for inputs, expected in case.data_sets:
            results = update(case.model.graph.node[0], inputs)
            for result, value in zip(results, expected, strict=True):
                np.testing.assert_allclose(result, value, rtol=1e-6, err_msg=case.name)


def nodes() -> Iterator[onnx.NodeProto]:
    def node(op_type: str, **how: Any) -> onnx.NodeProto:
        width = 2 + len(SLOTS[op_type])
        inputs, outputs = ["R", "T", *"XGVH"[:width]], ["X'", "V'", "H'"][: width - 1]
        return onnx.helper.make_node(op_type, inputs, outputs, domain=DOMAIN, **how)

    yield node("Adam", alpha=0.9, beta=0.999, epsilon=1e-3)
    # The reference subtracts in float32; these numbers are exact there.
    yield node("Adam", alpha=0.9375, beta=0.125, epsilon=1e-7, norm_coefficient=0.125)
    yield node("Adagrad", epsilon=1e-5, decay_factor=0.5, norm_coefficient=0.1)
    yield node("Adagrad", epsilon=1e-2)
    yield node("Momentum", alpha=0.95, beta=0.1, mode="standard", norm_coefficient=0.1)
    yield node("Momentum", alpha=0.9, beta=1.0, mode="nesterov", norm_coefficient=0.0)


@pytest.mark.parametrize("node", list(nodes()), ids=lambda node: node.op_type)
def test_several_steps_of_the_reference_implementation(node: onnx.NodeProto) -> None:
    """In float64, each with its own state; Adam from T = 1, where its bias correction begins."""
    random = np.random.default_rng(0)
    ours = theirs = [random.standard_normal(4), *(np.zeros(4) for _ in SLOTS[node.op_type])]
    reference = _evaluator(node)
    rate = np.asarray(0.1)
    first = 1 if node.op_type == "Adam" else 0
    for done in range(first, first + 5):
        gradient = random.standard_normal(4)
        ours = update(node, [rate, done, ours[0], gradient, *ours[1:]])
        given = [rate, np.asarray(done), theirs[0], gradient, *theirs[1:]]
        theirs = reference.run(None, dict(zip(node.input, given, strict=True)))
        for result, value in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(result, value, rtol=1e-12)


def _evaluator(node: onnx.NodeProto) -> Any:
    double, integer = onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64
    types: dict[str, Any] = {"R": (double, []), "T": (integer, [])}
    make = onnx.helper.make_tensor_value_info
    inputs = [make(name, *types.get(name, (double, [4]))) for name in node.input]
    graph = onnx.helper.make_graph([node], "step", inputs, [make(name, double, [4]) for name in node.output])
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid(DOMAIN, 1)]
    return onnx.reference.ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opsets))
