from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edgeopt_runtime import GraphError, StateError, StorageError, TrainingSession, onnx_wire, pack_bundle
from edgeopt_runtime.dtypes import DTYPES


def run(path, **inputs):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)


def test_the_exported_model_predicts_what_the_session_predicts(session, make_batches, tmp_path):
    for batch in make_batches(4, 4, 4):
        session.step(batch)
    session.export_inference(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == ["x"]
    assert {tensor.name for tensor in model.graph.initializer} == {"weight", "bias", "scale"}
    for batch in make_batches(1, 6, seed=5):
        (output,) = run(tmp_path / "model.onnx", x=batch["x"])
        # Not to the last bit: ONNX Runtime may fold and repack weights that it knows to be constant.
        np.testing.assert_allclose(output, session.predict(batch), rtol=1e-6, atol=1e-7)


def test_exporting_again_replaces_the_file(session, make_batches, tmp_path):
    session.export_inference(tmp_path / "model.onnx")
    before = (tmp_path / "model.onnx").read_bytes()
    session.step(make_batches(4)[0])
    session.export_inference(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() != before
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_a_bundle_without_prediction_cannot_be_exported(contents, tmp_path):
    signatures = {name: signature for name, signature in contents.manifest.signatures.items() if name == "step"}
    manifest = replace(contents.manifest, signatures=signatures)
    packed = pack_bundle(manifest, {"step.onnx": contents.graphs["step.onnx"]}, contents.state)
    with pytest.raises(StateError, match="no predict graph; it has step"):
        TrainingSession.load(packed).export_inference(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3), (1, 300, 2)])
def test_initializers_of_each_type_and_shape(dtype, shape):
    row = DTYPES[dtype]
    array = np.arange(np.prod(shape), dtype=np.int64).reshape(shape).astype(row.storage)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("w", row.onnx, shape)],
        [helper.make_tensor_value_info("y", row.onnx, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    baked = onnx.load_model_from_string(b"".join(onnx_wire.bake(model.SerializeToString(), {"w": (dtype, array)})))
    onnx.checker.check_model(baked, full_check=True)
    (tensor,) = baked.graph.initializer
    assert list(tensor.dims) == list(shape)
    assert tensor.data_type == row.onnx
    assert tensor.raw_data == array.tobytes()
    assert numpy_helper.to_array(tensor).shape == shape
    assert not baked.graph.input


def test_everything_else_of_the_model_is_kept(contents):
    model = onnx.load_model_from_string(contents.graphs["predict.onnx"])
    model.doc_string = "said" * 100
    helper.set_model_props(model, {"author": "someone"})
    model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "kept"))
    tensors = {"weight": ("float32", contents.state["weight"])}
    baked = onnx.load_model_from_string(b"".join(onnx_wire.bake(model.SerializeToString(), tensors)))
    expected = onnx.ModelProto()
    expected.CopyFrom(model)
    del expected.graph.input[[value.name for value in model.graph.input].index("weight")]
    expected.graph.initializer.append(numpy_helper.from_array(contents.state["weight"], "weight"))
    assert baked == expected


def test_two_gigabytes_are_the_limit(contents, monkeypatch):
    monkeypatch.setattr(onnx_wire, "LARGEST_MESSAGE", 200)
    with pytest.raises(StorageError, match="one ONNX file holds at most 200"):
        onnx_wire.bake(contents.graphs["predict.onnx"], {"weight": ("float32", contents.state["weight"])})


def test_a_model_without_a_graph_is_refused():
    with pytest.raises(GraphError, match="one graph, not 0"):
        onnx_wire.bake(onnx.ModelProto(ir_version=9).SerializeToString(), {})


def _external(tensor: onnx.TensorProto) -> onnx.TensorProto:
    onnx.external_data_helper.set_external_data(tensor, location="/etc/passwd")
    tensor.ClearField("raw_data")
    return tensor


@pytest.mark.parametrize("place", ["initializer", "constant", "subgraph", "function"])
@pytest.mark.parametrize("external", [True, False])
def test_tensors_in_other_files_are_found_wherever_they_are(place, external):
    tensor = numpy_helper.from_array(np.ones(3, np.float32), "location")
    tensor = _external(tensor) if external else tensor
    if not external:
        tensor.data_location = TensorProto.DEFAULT
    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    result = helper.make_tensor_value_info("c", TensorProto.FLOAT, (3,))
    branch = helper.make_graph([constant], "branch", [], [result])
    nodes = {
        "constant": [constant],
        "subgraph": [helper.make_node("If", ["p"], ["y"], then_branch=branch, else_branch=branch)],
    }
    graph = helper.make_graph(nodes.get(place, []), "g", [], [], [tensor] if place == "initializer" else [])
    functions = [helper.make_function("d", "F", [], ["c"], [constant], [])] if place == "function" else []
    model = helper.make_model(graph, functions=functions)
    assert onnx_wire.has_external_data(model.SerializeToString()) is external


@given(data=st.data())
def test_damaged_models_are_refused_or_baked(contents, data):
    graph = bytearray(contents.graphs["predict.onnx"])
    for _ in range(data.draw(st.integers(1, 3))):
        graph[data.draw(st.integers(0, len(graph) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(graph)))
    for damaged in (bytes(graph), bytes(graph[:cut])):
        try:
            pieces = onnx_wire.bake(damaged, {"weight": ("float32", contents.state["weight"])})
        except GraphError:
            continue
        assert b"".join(pieces)


@given(number=st.integers(0, 2**64 - 1))
def test_numbers_are_encoded_as_protobuf_does(number):
    encoded = onnx_wire._varint(number)
    assert onnx_wire._read_varint(memoryview(encoded + b"\xff"), 0) == (number, len(encoded))
    if number < 2**63:
        assert TensorProto(dims=[number]).SerializeToString() == b"\x08" + encoded
