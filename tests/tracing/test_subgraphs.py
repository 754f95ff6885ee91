from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from edgeopt import tracing as xp
from edgeopt.errors import TracingError
from edgeopt.tracing import Array, Tracer, new_graph, new_model, op
from edgeopt.tracing.inlining import inline
from edgeopt.tracing.scanning import scan
from edgeopt.tracing.subgraphs import all_nodes, bodies, captured, operands, remove_unused

W = np.asarray([1, 2, 3], np.float32)


@pytest.fixture
def tracer() -> Tracer:
    return Tracer(new_graph("outer"))


def run(tracer: Tracer, **inputs: Any) -> list[Any]:
    model = ir.serde.serialize_model(new_model(tracer.graph))
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {name: np.asarray(value, np.float32) for name, value in inputs.items()}))


def branching(x: Array, w: Array) -> tuple[Array, ir.Node]:
    """sin(x) + w where the sum of x is positive, else x · w."""
    branches = {}
    for name in ("then_branch", "else_branch"):
        inner = x.tracer.subgraph(name)
        here = inner.wrap(x.value)
        inner.result(xp.sin(here) + w if name == "then_branch" else here * w)
        branches[name] = inner.graph
    (y,) = x.tracer.emit("If", xp.sum(x) > 0.0, outputs=1, **branches)
    node = y.value.producer()
    assert node is not None
    return y, node


def test_names_differ_across_all_graphs(tracer: Tracer) -> None:
    x, w = tracer.input("x", np.float32, ("n", 3)), tracer.input("w", np.float32, (3,))
    first, _ = branching(x, w)
    second, _ = branching(xp.sin(first), w)
    tracer.output(second, "sin")
    nodes = list(all_nodes(tracer.graph))
    names = [value.name for node in nodes for value in node.outputs]
    assert len(set(names)) == len(names)
    assert len({node.name for node in nodes}) == len(nodes)
    assert not set(names) & {"x", "w"}
    found = run(tracer, x=[[1, 2, 3]], w=[1, 2, 3])[0]
    np.testing.assert_allclose(found, np.sin(np.sin(np.sin([W]) + W)) + W, rtol=1e-6)


def test_an_operation_goes_to_the_innermost_graph_of_its_operands(tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, (3,))
    inner = tracer.subgraph("body")
    state = inner.argument("state", np.float32, (3,))
    both = [x * state, state * x, op.Sum(x, x, state)]
    assert {array.value.producer().graph for array in both} == {inner.graph}  # type: ignore[union-attr]  # it has one
    assert (x * x).value.producer().graph is tracer.graph  # type: ignore[union-attr]  # it has one


def test_captured_tensors_are_operands_in_the_order_of_their_use(tracer: Tracer) -> None:
    x, w = tracer.input("x", np.float32, (3,)), tracer.input("w", np.float32, (3,))
    _, node = branching(x, w)
    assert captured(node) == (x.value, w.value)
    assert operands(node) == (*node.inputs, x.value, w.value)


def test_tensors_captured_by_bodies_of_bodies(tracer: Tracer) -> None:
    x, w = tracer.input("x", np.float32, (4, 3)), tracer.input("w", np.float32, (3,))

    def step(carried: Any, slices: Any) -> Any:
        return [carried[0] + branching(slices[0], w)[0]], []

    (last,), _ = scan(step, [xp.zeros_like(w)], [x])
    node = last.value.producer()
    assert node is not None
    assert captured(node) == (w.value,)
    assert [inner.op_type for inner in all_nodes(bodies(node)[0])].count("If") == 1
    tracer.output(last, "last")
    rows = np.asarray([[1, 2, 3], [-1, -2, -3], [1, 0, 0], [0, -4, 0]], np.float32)
    expected = sum(np.sin(row) + W if row.sum() > 0 else row * W for row in rows)
    np.testing.assert_allclose(run(tracer, x=rows, w=[1, 2, 3])[0], expected, rtol=1e-5)


def test_equal_control_flow_is_not_merged(tracer: Tracer) -> None:
    x, w = tracer.input("x", np.float32, (3,)), tracer.input("w", np.float32, (3,))
    assert branching(x, w)[1] is not branching(x, w)[1]


@pytest.mark.parametrize("backwards", [False, True])
def test_scan(backwards: bool, tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, ("time", 2))
    (last,), (sums,) = scan(
        lambda carried, slices: ([carried[0] + slices[0]], [carried[0] * slices[0]]),
        [tracer.constant(np.ones(2, np.float32))],
        [x],
        backwards=backwards,
    )
    assert last.shape == (2,)
    assert sums.shape == ("time", 2)
    tracer.output(last, "last")
    tracer.output(sums, "sums")
    rows = np.asarray([[1, 2], [3, 4], [5, 6]], np.float32)
    order = rows[::-1] if backwards else rows
    before = np.cumsum(np.vstack([np.ones((1, 2)), order]), 0)
    found_last, found = run(tracer, x=rows)
    np.testing.assert_array_equal(found_last, before[-1])
    np.testing.assert_array_equal(found, (before[:-1] * order)[::-1] if backwards else before[:-1] * order)


def test_shapes_of_a_scan_along_other_axes(tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, (2, "batch", 5))
    inner = tracer.subgraph("body")
    row = inner.argument("row", np.float32, (2, "batch"))
    inner.result(row * 2.0)
    (y,) = tracer.emit(
        "Scan", x, outputs=1, body=inner.graph, num_scan_inputs=1, scan_input_axes=[-1], scan_output_axes=[1]
    )
    assert y.shape == (2, 5, "batch")


def test_an_output_of_a_body_needs_a_type(tracer: Tracer) -> None:
    x = tracer.input("x", np.float32, (2, 3))
    inner = tracer.subgraph("body")
    row = inner.argument("row", np.float32, (3,))
    inner.result(row * 2.0)
    inner.graph.outputs[0].type = None
    with pytest.raises(TracingError, match="in a body of Scan is not known"):
        tracer.emit("Scan", x, outputs=1, body=inner.graph, num_scan_inputs=1)


def test_inlining_copies_bodies_and_infers_types_anew(tracer: Tracer) -> None:
    source = Tracer(new_graph("source"))
    x, w = source.input("x", np.float32, ("n", 3)), source.input("w", np.float32, (3,))
    source.output(branching(x, w)[0] + w, "y")
    arguments = [tracer.input("x", np.float32, (2, 3)), tracer.input("w", np.float32, (3,))]
    for _ in range(2):
        (y,) = inline(tracer, source.graph, arguments)
        assert y.shape == (2, 3)
    tracer.output(y, "y")
    assert sum(node.op_type == "If" for node in source.graph) == 1
    found = run(tracer, x=[[1, 2, 3], [0, 0, 0]], w=[1, 2, 3])[0]
    np.testing.assert_allclose(found, np.sin([[1, 2, 3], [0, 0, 0]]) + 2 * W, rtol=1e-6)


def test_unused_control_flow_releases_what_it_captured(tracer: Tracer) -> None:
    x, w = tracer.input("x", np.float32, (3,)), tracer.input("w", np.float32, (3,))
    branching(x, xp.exp(w))
    tracer.output(x + 1.0, "y")
    remove_unused(tracer.graph)
    assert [node.op_type for node in tracer.graph if node.op_type != "Constant"] == ["Add"]


def test_a_name_that_a_body_has_taken_is_freed_for_an_output(tracer: Tracer) -> None:
    x, w = tracer.input("x", np.float32, (3,)), tracer.input("w", np.float32, (3,))
    y, node = branching(x, w)
    inner_name = next(iter(bodies(node)[0])).outputs[0].name
    assert inner_name is not None
    tracer.output(y, inner_name)
    assert next(iter(bodies(node)[0])).outputs[0].name != inner_name
    run(tracer, x=[1, 2, 3], w=[1, 2, 3])
