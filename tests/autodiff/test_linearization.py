"""Derivatives along directions against PyTorch's, in the graph and in a loop over many of them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch

from edgeopt import tracing as xp
from edgeopt.autodiff import Linearization
from edgeopt.lowering import lower

rng = np.random.default_rng(0)
SHAPES = {"x": (4, 3), "w": (3, 5), "b": (5,)}
VALUES = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}


def program(module, x, w, b):
    hidden = module.tanh(x @ w + b)
    return hidden * hidden / (1.0 + module.exp(x @ w))


def run(tracer, feed):
    lower(tracer)
    model = ir.to_proto(xp.new_model(tracer.graph)).SerializeToString()
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)


def traced():
    tracer = xp.Tracer(xp.new_graph("forward"))
    inputs = {name: tracer.input(name, np.float64, shape) for name, shape in SHAPES.items()}
    return tracer, list(inputs.values()), program(xp, **inputs)


def expected(directions):
    arrays = tuple(torch.tensor(value) for value in VALUES.values())
    along = tuple(torch.tensor(direction) for direction in directions)
    _, derivative = torch.autograd.functional.jvp(lambda *each: program(torch, *each), arrays, along)
    return derivative.numpy()


def test_one_direction():
    tracer, inputs, output = traced()
    directions = {f"d{name}": rng.normal(size=shape) for name, shape in SHAPES.items()}
    given = [tracer.input(name, np.float64, value.shape) for name, value in directions.items()]
    tracer.output(Linearization(tracer, output, inputs)(tracer, given), "derivative")
    (derivative,) = run(tracer, {**VALUES, **directions})
    np.testing.assert_allclose(derivative, expected(directions.values()), rtol=1e-12)


def test_many_directions_in_a_loop():
    tracer, inputs, output = traced()
    rows = {f"d{name}": rng.normal(size=(7, *shape)) for name, shape in SHAPES.items()}
    given = [tracer.input(name, np.float64, value.shape) for name, value in rows.items()]
    answer = Linearization(tracer, output, inputs)
    _, (found,) = xp.scan(lambda _, slices: ([], [answer(slices[0].tracer, slices)]), [], given)
    tracer.output(found, "derivatives")
    (derivatives,) = run(tracer, {**VALUES, **rows})
    for place, derivative in enumerate(derivatives):
        np.testing.assert_allclose(derivative, expected([value[place] for value in rows.values()]), rtol=1e-12)


def test_what_computes_the_transpose_alone_is_gone():
    tracer, inputs, output = traced()
    given = [tracer.input(f"d{name}", np.float64, shape) for name, shape in SHAPES.items()]
    tracer.output(Linearization(tracer, output, inputs)(tracer, given), "derivative")
    lower(tracer)
    # Forward mode of a matrix product by both operands are two, and two more for the other product; nothing transposed.
    assert sum(node.op_type == "MatMul" for node in tracer.graph) <= 2 + 2 * 2


@pytest.mark.parametrize("name", ["x", "w"])
def test_tensors_that_do_not_matter(name):
    tracer, inputs, _ = traced()
    by_name = dict(zip(SHAPES, inputs, strict=True))
    direction = tracer.input("direction", np.float64, SHAPES["b"])
    answer = Linearization(tracer, by_name[name] * 2.0, [by_name["b"]])
    tracer.output(answer(tracer, [direction]), "derivative")
    (derivative,) = run(tracer, {**VALUES, "direction": VALUES["b"]})
    np.testing.assert_array_equal(derivative, np.zeros(SHAPES[name]))
