from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from edgeopt.autodiff import backward
from edgeopt.canonical.pooling import pool_before_relu
from edgeopt.lowering import lower
from edgeopt.tracing import Array, Tracer, new_graph, new_model, op

Program = Callable[[Array], Array]
HOW = {"kernel_shape": [2, 2], "strides": [2, 2]}


def _graph(program: Program) -> ir.Graph:
    tracer = Tracer(new_graph("forward"))
    tracer.output(program(tracer.input("x", np.float32, ("batch", 2, 6, 4))), "y")
    return tracer.graph


def _operators(graph: ir.Graph) -> list[str]:
    return [node.op_type for node in graph]


def _value_and_gradient(graph: ir.Graph, x: np.ndarray) -> list[np.ndarray]:
    tracer = Tracer(graph)
    y = tracer.wrap(graph.outputs[0])
    gradient = backward(tracer, {y.value: op.Cos(y)}, [graph.inputs[0]])[0]
    assert gradient is not None
    tracer.output(gradient, "gradient")
    lower(tracer)
    model = ir.serde.serialize_model(new_model(graph)).SerializeToString()
    return list(onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x}))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: op.MaxPool(op.Relu(x), **HOW),
        lambda x: op.Exp(op.MaxPool(op.Relu(op.Sin(x)), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])),
        lambda x: op.GlobalMaxPool(op.MaxPool(op.Relu(x), **HOW)),
    ],
)
def test_values_and_gradients_stay_the_same(program: Program) -> None:
    """Also where elements are equal, among them those that the ReLU makes zero."""
    x = np.round(np.random.default_rng(0).standard_normal((3, 2, 6, 4)) * 2).astype(np.float32) / 2
    moved = _graph(program)
    pool_before_relu(moved)
    operators = _operators(moved)
    assert operators.index("Relu") > max(i for i, name in enumerate(operators) if name.endswith("MaxPool"))
    for result, expected in zip(_value_and_gradient(moved, x), _value_and_gradient(_graph(program), x), strict=True):
        np.testing.assert_array_equal(result, expected)


def both_read(x: Array) -> Array:
    clipped = op.Relu(x)
    return op.Concat(op.MaxPool(clipped, kernel_shape=[1, 1]), clipped, axis=1)


def indices_read(x: Array) -> Array:
    pooled, indices = x.tracer.emit("MaxPool", op.Relu(x), outputs=2, **HOW)
    return op.MaxUnpool(pooled, indices, **HOW)


@pytest.mark.parametrize(
    "program",
    [both_read, indices_read, lambda x: op.AveragePool(op.Relu(x), **HOW), lambda x: op.MaxPool(op.Sigmoid(x), **HOW)],
)
def test_what_stays_as_it_is(program: Program) -> None:
    graph = _graph(program)
    before = _operators(graph)
    pool_before_relu(graph)
    assert _operators(graph) == before
