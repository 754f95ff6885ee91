"""Scalars beside tensors whose last axis is 1."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from edgeopt import tracing as xp
from edgeopt.lowering import give_scalars_a_rank
from edgeopt.tracing import Tracer, new_graph, new_model, op

SCALARS = {"s": np.float32(3.0), "one": np.full(1, 0.5, np.float32), "row": np.arange(4, dtype=np.float32)}


def program(x):
    return {
        "a": x["x"] * x["s"] + 2.0,
        "b": xp.where(x["x"] > x["s"], x["x"], x["one"]),
        "c": op.Max(x["x"], x["one"], x["s"]),
        "d": x["x"] * x["row"],
    }


@pytest.mark.parametrize(
    ("shape", "reshaped"), [((3, 2, 1, 1), True), ((5, 1), True), ((1, 1), False), ((2, 4), False), ((1,), False)]
)
def test_scalars_get_the_rank_of_the_tensor_and_nothing_else_changes(shape, reshaped):
    tracer = Tracer(new_graph("g"))
    values = {"x": np.random.default_rng(0).normal(size=shape).astype(np.float32), **SCALARS}
    arrays = {name: tracer.input(name, value.dtype, value.shape) for name, value in values.items()}
    for name, array in program(arrays).items():
        tracer.output(array, name)
    models = []
    for change in (lambda graph: None, give_scalars_a_rank):
        change(tracer.graph)
        models.append(ir.to_proto(new_model(tracer.graph)).SerializeToString())
    before, after = (
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(
            None, {name: np.asarray(value) for name, value in values.items()}
        )
        for model in models
    )
    for ours, theirs in zip(after, before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    made = [node for node in tracer.graph if node.op_type == "Reshape"]
    # s, one and the constant 2.0, each once
    assert len(made) == (3 if reshaped else 0)
    if reshaped:
        short = [
            value
            for node in tracer.graph
            if node.op_type in ("Mul", "Add", "Where", "Greater", "Max")
            for value in node.inputs
            if value is not None and value.shape is not None and len(value.shape) < len(shape)
        ]
        assert [value.name for value in short] == ["row"]


def test_a_branch_has_its_own():
    """The same scalar in a graph and in a branch of it: names differ, as ONNX wants."""
    tracer = Tracer(new_graph("g"))
    x, s, c = (tracer.input(name, np.float32, shape) for name, shape in (("x", (3, 1)), ("s", ()), ("c", ())))
    inner = ir.Node("", "Mul", [x.value, s.value], num_outputs=1)
    other = ir.Node("", "Add", [x.value, s.value], num_outputs=1)
    for name, node in (("product", inner), ("total", other)):
        value = node.outputs[0]
        value.name, value.type, value.shape = name, x.value.type, x.value.shape
    branches = [
        ir.AttrGraph(key, ir.Graph([], [node.outputs[0]], nodes=[node], name=key))
        for key, node in (("then_branch", inner), ("else_branch", other))
    ]
    choice = ir.Node("", "If", [(c > 0.0).value], branches, num_outputs=1)
    choice.outputs[0].name, choice.outputs[0].type = "chosen", x.value.type
    choice.outputs[0].shape = x.value.shape
    tracer.graph.append(choice)
    tracer.output(tracer.wrap(choice.outputs[0]) + x * s, "y")
    give_scalars_a_rank(tracer.graph)
    model = ir.to_proto(new_model(tracer.graph)).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feed = {"x": np.ones((3, 1), np.float32), "s": np.asarray(2, np.float32), "c": np.asarray(1, np.float32)}
    np.testing.assert_array_equal(session.run(None, feed)[0], np.full((3, 1), 4.0))
