"""A bundle made by hand: `y = x * gain`, whose gain a step doubles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgeopt.bundle import Bundle
from edgeopt_runtime.manifest import (
    GraphInput,
    GraphOutput,
    Hyperparameter,
    InputSpec,
    Manifest,
    OutputSpec,
    Signature,
    TensorSpec,
)


@pytest.fixture
def models() -> dict[str, onnx.ModelProto]:
    def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    def model(name: str, nodes: list, inputs: list, outputs: list, functions: Sequence = ()) -> onnx.ModelProto:
        graph = helper.make_graph(nodes, name, inputs, outputs)
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("edgeopt", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=list(functions))

    twice = helper.make_function(
        "edgeopt",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Identity", ["a"], ["same"]), helper.make_node("Add", ["a", "same"], ["b"])],
        [helper.make_opsetid("", 20)],
    )
    # A subgraph, so that tables have one to look into.
    branches = {
        f"{name}_branch": helper.make_graph([helper.make_node(op, ["loss"], ["chosen"])], name, [], [value("chosen")])
        for name, op in (("then", "Abs"), ("else", "Neg"))
    }
    step = model(
        "step",
        [
            helper.make_node("Twice", ["gain"], ["gain2"], domain="edgeopt"),
            helper.make_node("ReduceMax", ["x"], ["loss"], keepdims=0),
            helper.make_node("IsNaN", ["loss"], ["nan"]),
            helper.make_node("If", ["nan"], ["checked"], **branches),
        ],
        [value("gain"), value("x", "n")],
        [value("gain2"), value("loss")],
        [twice],
    )
    predict = model(
        "predict", [helper.make_node("Mul", ["x", "gain"], ["y"])], [value("gain"), value("x", "n")], [value("y", "n")]
    )
    return {"step.onnx": step, "predict.onnx": predict}


@pytest.fixture
def manifest() -> Manifest:
    return Manifest(
        opset=20,
        ir_version=9,
        minimum_onnxruntime="1.17.0",
        producer={"edgeopt": "0.1.0"},
        tensors=(
            TensorSpec("gain", "parameter", "float32", (), trainable=True),
            TensorSpec("optimizer.step", "counter", "int64", ()),
        ),
        accumulators=(TensorSpec("accumulator.gain", "accumulator", "float32", (), parameter="gain"),),
        hyperparameters=(Hyperparameter("schedule.lr", "float64", 0.5),),
        inputs=(InputSpec("x", "model", "float32", ("n",)),),
        outputs=(OutputSpec("y", "float32", ("n",)),),
        signatures={
            "step": Signature(
                "step.onnx",
                (GraphInput("gain", "state"), GraphInput("x", "batch")),
                (GraphOutput("gain2", "state", tensor="gain"), GraphOutput("loss", "metric")),
            ),
            "predict": Signature(
                "predict.onnx",
                (GraphInput("gain", "state"), GraphInput("x", "batch")),
                (GraphOutput("y", "output"),),
            ),
        },
    )


@pytest.fixture
def bundle(manifest, models) -> Bundle:
    return Bundle(manifest, models, {"gain": np.array(3, np.float32), "optimizer.step": np.array(0)})
