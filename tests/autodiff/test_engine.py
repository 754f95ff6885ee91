from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from edgeopt import tracing as xp
from edgeopt.autodiff import REFUSED, RULES, ZERO_DERIVATIVE, backward
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.tracing import Array, Tracer, new_graph, new_model, op


@pytest.fixture
def tracer() -> Tracer:
    return Tracer(new_graph("engine"))


def run(tracer: Tracer, outputs: dict[str, Array], **inputs: Any) -> dict[str, Any]:
    for name, array in outputs.items():
        tracer.output(array, name)
    model = ir.serde.serialize_model(new_model(tracer.graph)).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = {name: np.asarray(value, np.float32) for name, value in inputs.items()}
    return dict(zip(outputs, session.run(list(outputs), feeds), strict=True))


def gradients(tracer: Tracer, loss: Array, *wrt: Array) -> list[Array | None]:
    return backward(tracer, {loss.value: tracer.constant(np.float32(1))}, [x.value for x in wrt])


@pytest.mark.parametrize(
    ("function", "derivative"),
    [
        (lambda x: x * x, lambda x: 2 * x),
        (lambda x: x + x, lambda x: 0 * x + 2),
        (lambda x: op.Sum(x, x, x), lambda x: 0 * x + 3),
        (lambda x: x * xp.exp(x) + xp.sin(x) * x, lambda x: np.exp(x) * (1 + x) + np.sin(x) + x * np.cos(x)),
    ],
    ids=["product", "sum", "variadic", "branches"],
)
def test_contributions_of_every_use_add_up(
    function: Callable[[Array], Array], derivative: Callable[[Any], Any], tracer: Tracer
) -> None:
    x = tracer.input("x", np.float32, (3,))
    (gradient,) = gradients(tracer, xp.sum(function(x)), x)
    assert gradient is not None
    value = np.asarray([-1.0, 0.5, 2.0], np.float32)
    np.testing.assert_allclose(run(tracer, {"g": gradient}, x=value)["g"], derivative(value), rtol=1e-5)


def test_what_the_loss_does_not_depend_on_has_no_gradient(tracer: Tracer) -> None:
    x, unused = tracer.input("x", np.float32, (3,)), tracer.input("unused", np.float32, (3,))
    compared = xp.astype(unused > 0.0, np.float32)
    loss = xp.sum(x * compared)
    to_x, to_unused = gradients(tracer, loss, x, unused)
    assert to_x is not None
    assert to_unused is None


def test_frozen_branches_cost_no_nodes(tracer: Tracer) -> None:
    x, w, v = (tracer.input(name, np.float32, (3, 3)) for name in "xwv")
    hidden = xp.tanh(xp.matmul(x, w))
    loss = xp.sum(xp.matmul(hidden, v))
    before = len(tracer.graph)
    gradients(tracer, loss, v)
    assert {node.op_type for node in list(tracer.graph)[before:]} <= {"Constant", "Expand", "Gemm", "Unsqueeze"}


def test_stop_gradient_holds_back_one_path_only(tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, (3,))
    loss = xp.sum(xp.stop_gradient(x) * x + op.Identity(x))
    (gradient,) = gradients(tracer, loss, x)
    assert gradient is not None
    value = np.asarray([1.0, 2.0, 3.0], np.float32)
    np.testing.assert_allclose(run(tracer, {"g": gradient}, x=value)["g"], value + 1)


def test_integers_carry_no_gradient(tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, (3,))
    rounded = xp.astype(xp.astype(x, np.int64), np.float32)
    (gradient,) = gradients(tracer, xp.sum(rounded), x)
    assert gradient is None


def test_several_seeds_and_intermediate_tensors(tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, (2,))
    hidden = xp.exp(x)
    first, second = hidden * 2.0, hidden * hidden
    seeds = {
        first.value: tracer.constant([1.0, 0.0], np.float32),
        second.value: tracer.constant([0.0, 1.0], np.float32),
    }
    to_x, to_hidden = backward(tracer, seeds, [x.value, hidden.value])
    assert to_x is not None
    assert to_hidden is not None
    results = run(tracer, {"x_gradient": to_x, "hidden_gradient": to_hidden}, x=[0.0, 1.0])
    np.testing.assert_allclose(results["hidden_gradient"], [2, 2 * np.e], rtol=1e-6)
    np.testing.assert_allclose(results["x_gradient"], [2, 2 * np.e**2], rtol=1e-6)


def test_all_unsupported_operators_are_named_at_once(tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, (1, 4, 4))
    distinct = op.Unique(op.Unique(x))
    _, scale, _ = tracer.emit("DynamicQuantizeLinear", distinct, outputs=3)
    with pytest.raises(UnsupportedOperatorError) as caught:
        backward(tracer, {scale.value: scale}, [x.value])
    message = str(caught.value)
    assert len(caught.value.problems) == 2
    assert "DynamicQuantizeLinear (nodes 'dynamicquantizelinear'): it computes with integers" in message
    assert "or from one in QuantizeLinear/DequantizeLinear (QDQ) form" in message
    assert "Unique (nodes 'unique', 'unique_1')" in message


def test_a_tensor_of_unknown_rank_is_refused(tracer: Tracer) -> None:
    x, shape = tracer.input("x", np.float32, (6,)), tracer.input("shape", np.int64, ("rank",))
    y = op.Exp(op.Reshape(x, shape))
    with pytest.raises(UnsupportedOperatorError, match="the rank of its operand 'reshape' is not known"):
        backward(tracer, {y.value: x}, [x.value])


def test_operators_outside_the_path_need_no_rule(tracer: Tracer) -> None:
    x, data = tracer.input("x", np.float32, (4,)), tracer.input("data", np.float32, (4,))
    loss = xp.sum(x * xp.sum(op.Unique(data)))
    assert gradients(tracer, loss, x)[0] is not None


def test_an_operator_of_another_domain_is_not_mistaken_for_the_standard_one(tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, (4,))
    node = ir.Node("com.example", "Exp", [x.value], num_outputs=1, name="theirs")
    node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = "y", x.value.type, x.value.shape
    tracer.graph.append(node)
    with pytest.raises(UnsupportedOperatorError, match=r"com\.example::Exp \(nodes 'theirs'\)"):
        backward(tracer, {node.outputs[0]: x}, [x.value])


def test_an_operator_is_in_one_table_only() -> None:
    assert not set(RULES) & set(ZERO_DERIVATIVE)
    assert not set(RULES) & set(REFUSED)
    assert not set(REFUSED) & set(ZERO_DERIVATIVE)
