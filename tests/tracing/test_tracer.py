from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from edgeopt import tracing as xp
from edgeopt.errors import TracingError
from edgeopt.tracing import (
    DOMAIN,
    IR_VERSION,
    OPSET,
    Tracer,
    new_graph,
    new_model,
    op,
    to_ir_dtype,
    to_numpy_dtype,
    trace_function,
)


def operators(tracer: Tracer) -> list[str]:
    return [node.op_type for node in tracer.graph]


def test_an_expression_is_computed_once(tracer: Tracer) -> None:
    x, y = tracer.input("x", np.float32, (3,)), tracer.input("y", np.float32, (3,))
    assert (xp.exp(x) * 2.0).value is (xp.exp(x) * 2.0).value
    assert xp.sum(x, axis=0).value is xp.sum(x, axis=0).value
    assert xp.sum(x, axis=0).value is not xp.sum(x, axis=0, keepdims=True).value
    assert (x - y).value is not (y - x).value
    assert operators(tracer).count("Exp") == 1


def test_equal_constants_are_one_and_different_ones_are_not(tracer: Tracer) -> None:
    assert tracer.constant(np.float32(2)).value is tracer.constant(2.0, np.float32).value
    assert tracer.constant(np.float32(0.0)).value is not tracer.constant(np.float32(-0.0)).value
    assert tracer.constant(np.float32(2)).value is not tracer.constant(np.float64(2)).value
    assert tracer.constant(np.zeros((1,))).value is not tracer.constant(np.zeros(())).value
    assert tracer.constant(np.float32("nan")).value is tracer.constant(np.float32("nan")).value


def test_random_numbers_are_never_the_same(tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, (3,))
    assert op.RandomUniformLike(x).value is not op.RandomUniformLike(x).value
    assert op.Dropout(x, 0.5, np.bool_(True)).value is not op.Dropout(x, 0.5, np.bool_(True)).value


def test_a_stopped_gradient_is_not_any_identity(tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, (3,))
    assert xp.stop_gradient(x).value is xp.stop_gradient(x).value
    assert xp.stop_gradient(x).value is not op.Identity(x).value


def test_a_node_that_is_gone_lends_its_place_to_no_other(tracer: Tracer) -> None:
    """Lowering removes nodes; a new tensor at an old one's address must not be taken for it."""
    x = tracer.input("x", np.float32, (3,))
    for factor in range(100):
        scaled = x * float(factor)
        root = xp.sqrt(scaled)
        producer = root.value.producer()
        assert producer is not None
        assert producer.inputs[0] is scaled.value
        producer.replace_input_with(0, x.value)
        del scaled, root, producer


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (np.float32, 1, np.float32),
        (np.float32, 1.5, np.float32),
        (np.int64, 1, np.int64),
        (np.float32, np.ones((), np.float64), np.float64),
        (np.int32, np.ones((), np.int64), np.int64),
        (np.float64, np.ones(3, np.float32), np.float64),
    ],
)
def test_types_are_promoted_as_in_the_array_api(left: Any, right: Any, expected: Any, tracer: Tracer) -> None:
    x = tracer.input("x", left, (3,))
    assert (x + right).dtype == expected
    assert (right * x).dtype == expected


def test_an_integer_array_takes_no_float(tracer: Tracer) -> None:
    x = tracer.input("x", np.int64, (3,))
    with pytest.raises(TracingError, match="cast the array first"):
        _ = x + 0.5


def test_numpy_leaves_operators_to_the_traced_array(tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, (3,))
    assert (np.ones(3, np.float32) * x).shape == (3,)
    assert (np.float32(2) - x).shape == (3,)


def test_operands_that_do_not_fit(tracer: Tracer) -> None:
    x, y = tracer.input("x", np.float32, (3, 4)), tracer.input("y", np.float32, (3, 4))
    with pytest.raises(TracingError, match=r"MatMul does not accept .*x: .*y: "):
        xp.matmul(x, y)


def test_no_truth_value_and_no_iteration(tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, (3,))
    with pytest.raises(TracingError, match="truth value"):
        bool(x > 0.0)
    with pytest.raises(TracingError, match="iterated"):
        list(x)
    with pytest.raises(TypeError):
        hash(x)


def test_an_operator_needs_a_traced_operand() -> None:
    with pytest.raises(TracingError, match="Exp has no traced operand"):
        op.Exp(np.ones(3))


def test_names(tracer: Tracer) -> None:
    x = tracer.input("exp", np.float32, (3,))
    with tracer.scope("outer"), tracer.scope("inner"):
        first = xp.exp(x)
    assert first.value.name == "outer/inner/exp"
    assert xp.exp(x * x).value.name == "exp_1"
    with pytest.raises(TracingError, match="'exp' already"):
        tracer.input("exp", np.float32, (3,))
    names = [value.name for node in tracer.graph for value in node.outputs]
    assert len(names) == len(set(names))


def test_outputs(tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, (3,))
    y = xp.exp(x)
    for array, name in ((y, "y"), (y, "again"), (x, "unchanged"), (tracer.constant(np.float32(1)), "one")):
        tracer.output(array, name)
    model = ir.serde.serialize_model(new_model(tracer.graph))
    onnx.checker.check_model(model, full_check=True)
    assert [output.name for output in model.graph.output] == ["y", "again", "unchanged", "one"]
    assert (model.ir_version, model.opset_import[0].version) == (IR_VERSION, OPSET)


def test_a_graph_can_be_taken_up_again() -> None:
    tracer = Tracer(new_graph("first"))
    tracer.output(xp.exp(tracer.input("x", np.float32, (3,))), "y")
    model = ir.serde.deserialize_model(ir.serde.serialize_model(new_model(tracer.graph)))
    tracer = Tracer(model.graph)
    y = tracer.wrap(model.graph.outputs[0])
    model.graph.outputs.clear()
    tracer.output(xp.exp(y), "z")
    onnx.checker.check_model(ir.serde.serialize_model(model), full_check=True)
    names = [node.name for node in model.graph]
    assert len(names) == len(set(names))


def test_a_function_is_a_function_of_its_own_domain(tracer: Tracer) -> None:
    def body(arrays: dict[str, Any]) -> dict[str, Any]:
        return {"total": arrays["a"] * arrays["b"] + 1.0, "difference": arrays["a"] - arrays["b"]}

    function = trace_function("Both", {"a": (np.float32, ("n",)), "b": (np.float32, ())}, body, ["fast"])
    a, b = tracer.input("a", np.float32, ("n",)), tracer.input("b", np.float32, ())
    results = tracer.call(function, [a, b], ["total", "difference"], {"fast": 1})
    for array, name in zip(results, ("t", "d"), strict=True):
        assert array.shape == ("n",)
        tracer.output(array, name)
    model = ir.serde.serialize_model(new_model(tracer.graph, [function]))
    onnx.checker.check_model(model, full_check=True)
    assert {entry.domain: entry.version for entry in model.opset_import} == {"": OPSET, DOMAIN: 1}
    (node,) = model.graph.node
    assert (node.domain, node.op_type) == (DOMAIN, "Both")
    x = np.asarray([1, 2], np.float32)
    total, difference = onnx.reference.ReferenceEvaluator(model).run(None, {"a": x, "b": np.float32(3)})
    np.testing.assert_array_equal(total, 3 * x + 1)
    np.testing.assert_array_equal(difference, x - 3)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool", ml_dtypes.bfloat16], ids=str
)
def test_types_map_both_ways(dtype: Any) -> None:
    assert to_numpy_dtype(to_ir_dtype(dtype)) == np.dtype(dtype)


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([("b", 1, 3), ("b", 2, 1)], ("b", 2, 3)),
        ([("b", 3), (3,)], ("b", 3)),
        ([("b",), ("c",)], (None,)),
        ([("b",), (1,)], ("b",)),
        ([("b",), (5,)], (5,)),
        ([(None, 2), ("b", 2)], (None, 2)),
        ([(), ("b", 2)], ("b", 2)),
    ],
)
def test_broadcasting_of_named_dimensions(
    shapes: list[tuple[int | str | None, ...]], expected: tuple[int | str | None, ...], tracer: Tracer
) -> None:
    a, b = (tracer.input(f"x{i}", np.float32, shape) for i, shape in enumerate(shapes))
    assert (a + b).shape == expected
    assert (b + a).shape == expected
    assert xp.where(a > b, a, b).shape == expected


def test_the_run_agrees_about_broadcast_names(run_both: Callable[..., tuple[Any, Any]]) -> None:
    a, b = np.ones((2, 1, 3), np.float32), np.ones((1, 4, 1), np.float32)
    for result in run_both(lambda a, b: a + b, [a, b], {0: ("n", 1, 3), 1: (1, "m", 1)}):
        assert result.shape == (2, 4, 3)


def test_a_node_that_a_pass_removed_is_added_again(tracer: Tracer) -> None:
    """An expression computed earlier is only shared while its node is in the graph."""
    x = tracer.input("x", np.float32, (3,))
    xp.exp(x)
    tracer.constant(np.float32(2))
    tracer.graph.remove(list(tracer.graph), safe=True)
    assert xp.exp(x).value.producer() in list(tracer.graph)
    assert tracer.constant(np.float32(2)).value.producer() in list(tracer.graph)


def test_multiplying_by_one_adds_no_node() -> None:
    """ONNX Runtime 1.32 fails to load x · 1.0 · (1.0 / y), which optimizers with a factor switched off come out as."""
    graph = new_graph("g")
    tracer = Tracer(graph)
    x = tracer.input("x", np.float32, (3,))
    assert [(x * 1.0) is x, (1 * x) is x, (x / 1.0) is x] == [True] * 3
    assert not list(graph)
    tracer.output(1.0 - x * 1.0 * (1.0 / (1.0 - x)), "y")
    model = ir.serde.serialize_model(new_model(graph))
    (y,) = onnxruntime.InferenceSession(model.SerializeToString()).run(
        None, {"x": np.asarray([0.5, 0.25, -1.0], np.float32)}
    )
    np.testing.assert_allclose(y, [0.0, 2 / 3, 1.5], rtol=1e-6)


def test_an_output_takes_its_name_from_an_intermediate_but_not_from_an_input():
    graph = new_graph("g")
    tracer = Tracer(graph)
    x = tracer.input("x", np.float32, (3,))
    inner = tracer.emit("Exp", x)
    assert inner.value.name == "exp"
    tracer.output(tracer.emit("Neg", inner), "exp")
    names = [value.name for node in graph for value in node.outputs]
    assert len(set(names)) == len(names)
    for taken in ("x", "exp"):
        with pytest.raises(TracingError, match="input or output named"):
            tracer.output(tracer.emit("Sqrt", inner), taken)
