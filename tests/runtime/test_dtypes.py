"""State of every element type goes through load, step, save and export."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors.torch
import torch
from onnx import helper

from edgeopt_runtime import StateError, TrainingSession, UnsupportedVersionError, pack_bundle, read_bundle
from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.manifest import GraphInput, GraphOutput, InputSpec, Manifest, OutputSpec, Signature, TensorSpec
from edgeopt_runtime.tensors import aligned_copy, aligned_empty, encode_state


def make_packed(dtype: str) -> bytes:
    """`step` adds `x` to `w` and to a slot of another shape; `predict` gives `w` as float32."""
    element = DTYPES[dtype].onnx
    float32 = onnx.TensorProto.FLOAT
    value = helper.make_tensor_value_info
    manifest = Manifest(
        opset=20,
        ir_version=9,
        minimum_onnxruntime="1.17.0",
        tensors=(TensorSpec("w", "parameter", dtype, (2, 3), trainable=True), TensorSpec("flag", "buffer", dtype, ())),
        accumulators=(),
        hyperparameters=(),
        inputs=(InputSpec("x", "model", dtype, (2, 3)),),
        outputs=(OutputSpec("y", "float32", (2, 3)),),
        signatures={
            "step": Signature(
                "step.onnx",
                (GraphInput("w", "state"), GraphInput("flag", "state"), GraphInput("x", "batch")),
                (
                    GraphOutput("w2", "state", tensor="w"),
                    GraphOutput("flag2", "state", tensor="flag"),
                    GraphOutput("loss", "metric"),
                ),
            ),
            "predict": Signature(
                "predict.onnx", (GraphInput("w", "state"), GraphInput("x", "batch")), (GraphOutput("y", "output"),)
            ),
        },
    )

    def added(left: str, right: str, result: str) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Cast", [left], [f"{result}_left"], to=float32),
            helper.make_node("Cast", [right], [f"{result}_right"], to=float32),
            helper.make_node("Add", [f"{result}_left", f"{result}_right"], [result]),
        ]

    step = helper.make_graph(
        [
            *added("w", "x", "sum"),
            helper.make_node("Cast", ["sum"], ["w2"], to=element),
            helper.make_node("ReduceMax", ["sum"], ["loss"], keepdims=0),
            *added("flag", "loss", "flag_sum"),
            helper.make_node("Cast", ["flag_sum"], ["flag2"], to=element),
        ],
        "step",
        [value("w", element, (2, 3)), value("flag", element, ()), value("x", element, (2, 3))],
        [value("w2", element, (2, 3)), value("flag2", element, ()), value("loss", float32, ())],
    )
    predict = helper.make_graph(
        added("w", "x", "y"),
        "predict",
        [value("w", element, (2, 3)), value("x", element, (2, 3))],
        [value("y", float32, (2, 3))],
    )
    graphs = {
        f"{graph.name}.onnx": helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9
        ).SerializeToString()
        for graph in (step, predict)
    }
    ones = as_type(np.ones((2, 3)), dtype)
    return pack_bundle(manifest, graphs, {"w": ones, "flag": as_type(np.zeros(()), dtype)})


def as_type(array: np.ndarray, dtype: str) -> np.ndarray:
    return np.asarray(array).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_state_of_each_type_steps_saves_and_exports(dtype, tmp_path):
    session = TrainingSession.load(make_packed(dtype), threads=1)
    x = as_type(np.array([[0, 1, 1], [0, 0, 1]]), dtype)
    expected = np.ones((2, 3), np.float32)
    for _ in range(3):
        top = float((expected + x.astype(np.float32)).max())
        assert session.step({"x": x}) == {"loss": top}
        expected = as_type(expected + x.astype(np.float32), dtype).astype(np.float32)
    session.save(tmp_path / "a.edgeopt")
    resumed = TrainingSession.load(tmp_path / "a.edgeopt", threads=1)
    stored = resumed.state()["w"]
    assert stored.dtype == DTYPES[dtype].storage
    np.testing.assert_array_equal(stored.view(as_type(x, dtype).dtype).astype(np.float32), expected)
    np.testing.assert_array_equal(resumed.predict(x), session.predict(x))
    session.load_parameters({"w": x})
    np.testing.assert_array_equal(session.predict(x), 2 * x.astype(np.float32))
    session.export_inference(tmp_path / "a.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "a.onnx"), full_check=True)
    if dtype != "bfloat16":
        exported = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"), providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(exported.run(None, {"x": x})[0], session.predict(x))


def test_bfloat16_is_stored_as_safetensors_knows_it(tmp_path: Path):
    values = torch.tensor([[1.5, -2, 3], [0, 0.1, 1e30]], dtype=torch.bfloat16)
    bits = values.view(torch.uint16).numpy()
    content = b"".join(encode_state([TensorSpec("w", "parameter", "bfloat16", (2, 3))], {"w": bits}))
    assert torch.equal(safetensors.torch.load(content)["w"], values)
    written = read_bundle(make_packed("bfloat16")).state["w"]
    np.testing.assert_array_equal(written.view(ml_dtypes.bfloat16).astype(np.float32), np.ones((2, 3)))


def test_an_onnxruntime_without_bfloat16_is_told(monkeypatch):
    session = TrainingSession.load(make_packed("bfloat16"))
    monkeypatch.delattr(onnxruntime.OrtValue, "ortvalue_from_numpy_with_onnx_type")
    with pytest.raises(UnsupportedVersionError, match="bfloat16"):
        session.predict(as_type(np.ones((2, 3)), "bfloat16"))


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (5, 7)])
@pytest.mark.parametrize("dtype", ["float64", "int8", "bool"])
def test_buffers_are_aligned(shape, dtype):
    array = aligned_empty(shape, np.dtype(dtype))
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.size == 0 or array.ctypes.data % 64 == 0
    assert array.flags.c_contiguous
    assert array.flags.writeable
    source = np.ones(shape, dtype).T
    copy = aligned_copy(source)
    np.testing.assert_array_equal(copy, source)
    assert not np.shares_memory(copy, source)


def test_a_wrong_type_is_not_reinterpreted():
    with pytest.raises(StateError, match="must be bfloat16"):
        encode_state([TensorSpec("w", "parameter", "bfloat16", (2,))], {"w": np.zeros(2, np.float32)})
