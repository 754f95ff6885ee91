"""Cotangents of one tensor, added up without making what is zero: values against numpy, and the nodes that are left."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from edgeopt.autodiff import backward
from edgeopt.lowering import lower
from edgeopt.tracing import Tracer, new_graph, new_model, op

rng = np.random.default_rng(0)
X = rng.normal(size=(6, 4)).astype(np.float32)
ROWS = np.asarray([[2], [0], [2], [5]])
PLACES = np.asarray([[1, 0, 3, 3], [5, 1, 0, 3]])


def gradient(loss):
    """The gradient of a scalar function of X, and how often each operator stands in its graph."""
    tracer = Tracer(new_graph("gradient"))
    x = tracer.input("x", np.float32, X.shape)
    total = loss(x)
    (found,) = backward(tracer, {total.value: tracer.constant(np.ones((), np.float32))}, [x.value])
    assert found is not None
    tracer.output(found, "gradient")
    lower(tracer)
    model = ir.serde.serialize_model(new_model(tracer.graph, []))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": X})[0], Counter(node.op_type for node in tracer.graph)


def total(x):
    return op.ReduceSum(x, keepdims=0)


def test_parts_of_an_axis_are_joined():
    def loss(x):
        second, first = op.Slice(x, [2], [6], [0]), op.Slice(x, [0], [2], [0])
        return total(second * second) + total(first * 3.0)

    found, nodes = gradient(loss)
    expected = np.concatenate([np.full((2, 4), 3.0), 2.0 * X[2:]])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert not nodes["Pad"]


@pytest.mark.parametrize("bounds", [(0, 3, 2, 6), (0, 2, 3, 6), (0, 2, 2, 5)], ids=["overlap", "gap", "end"])
def test_parts_that_do_not_make_a_whole_are_added(bounds):
    def loss(x):
        return total(op.Slice(x, [bounds[0]], [bounds[1]], [0])) + total(op.Slice(x, [bounds[2]], [bounds[3]], [0]))

    expected = np.zeros_like(X)
    expected[bounds[0] : bounds[1]] += 1.0
    expected[bounds[2] : bounds[3]] += 1.0
    np.testing.assert_array_equal(gradient(loss)[0], expected)


def test_elements_are_scattered_into_what_else_arrives():
    weights = rng.normal(size=PLACES.shape).astype(np.float32)

    def loss(x):
        return total(op.GatherElements(x, PLACES, axis=0) * weights) + total(x * x)

    expected = 2.0 * X
    np.add.at(expected, (PLACES, np.arange(4)), weights)
    found, nodes = gradient(loss)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert nodes["ScatterElements"] == 1
    assert not nodes["ConstantOfShape"]


def test_rows_and_elements_together():
    def loss(x):
        return total(op.GatherND(x, ROWS)) + total(op.GatherElements(x, PLACES, axis=0))

    expected = np.zeros_like(X)
    np.add.at(expected, ROWS[:, 0], 1.0)
    np.add.at(expected, (PLACES, np.arange(4)), 1.0)
    np.testing.assert_allclose(gradient(loss)[0], expected, rtol=1e-6)


def test_a_picked_log_probability():
    """softmax - one-hot, each row times its weight; a row's label is picked twice."""
    labels, weights = np.asarray([[1, 1], [0, 2], [3, 3]]), np.asarray([[1.0], [2.0], [-1.0]], np.float32)

    def loss(x):
        scores = op.LogSoftmax(op.Slice(x, [0], [3], [0]), axis=1)
        return total(op.GatherElements(scores, labels, axis=1) * weights)

    probabilities = np.exp(X[:3]) / np.exp(X[:3]).sum(axis=1, keepdims=True)
    expected = np.zeros_like(X)
    expected[:3] = -2.0 * weights * probabilities
    np.add.at(expected, (np.arange(3)[:, None], labels), weights)
    np.testing.assert_allclose(gradient(loss)[0], expected, rtol=1e-5, atol=1e-6)
