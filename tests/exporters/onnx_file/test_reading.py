"""Files that contradict themselves are refused in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.parser
import pytest

from edgeopt.errors import EdgeoptError, UnsupportedModelError
from edgeopt_exporters.onnx_file import from_onnx

TEXT = """
<ir_version: 8, opset_import: ["" : 17]> m (float[n, 3] x) => (float[n, 2] y)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, 2}> { h = MatMul(x, w) y = Add(h, b) }
"""


def good() -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT)


def external(model: onnx.ModelProto, location: str) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location


DAMAGES: dict[str, tuple[Callable[[onnx.ModelProto], object], str]] = {
    "a weight is missing": (lambda m: m.graph.initializer.pop(0), "nothing gives the tensor 'w'"),
    "a cycle": (lambda m: m.graph.node[0].input.__setitem__(0, "y"), "cycle"),
    "no nodes": (lambda m: m.graph.ClearField("node"), "nothing gives the tensor 'y'"),
    "no outputs": (lambda m: m.graph.ClearField("output"), "no output"),
    "an output of nothing": (lambda m: setattr(m.graph.output[0], "name", "z"), "nothing gives the tensor 'z'"),
    "another type": (lambda m: setattr(m.graph.initializer[0], "data_type", 7), "the tensor 'w'"),
    "an unknown type": (lambda m: setattr(m.graph.initializer[0], "data_type", 99), "99 is not a valid"),
    "another shape": (lambda m: m.graph.initializer[0].dims.__setitem__(0, 5), "the tensor 'w': cannot reshape"),
    "too many inputs": (lambda m: m.graph.node[0].input.append("w"), "MatMul .* has 3 inputs"),
    "an input left out": (lambda m: m.graph.node[0].input.__setitem__(1, ""), "MatMul .* lacks input 1"),
    "no attribute": (lambda m: setattr(m.graph.node[1], "op_type", "Concat"), "lacks the attribute 'axis'"),
    "a tensor given twice": (lambda m: m.graph.node[1].output.__setitem__(0, "h"), "redeclared"),
    "a file that is not there": (lambda m: external(m, "nowhere.bin"), "nowhere.bin|in another file"),
    "a file outside": (lambda m: external(m, "../../../etc/passwd"), "the tensor 'w'|in another file"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file(tmp_path: Path, damage: str) -> None:
    change, message = DAMAGES[damage]
    model = good()
    change(model)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    for form in (model, tmp_path / "model.onnx"):
        with pytest.raises(UnsupportedModelError, match=message):
            from_onnx(form)


def test_bytes_that_are_others(tmp_path: Path) -> None:
    """Whatever a file holds, nothing but our errors comes out."""
    whole = good().SerializeToString()
    random = np.random.default_rng(0)
    for number in range(60):
        content = bytearray(whole if number % 3 else whole[: random.integers(len(whole))])
        for place in random.integers(0, max(len(content), 1), 2) if content else []:
            content[place] = random.integers(256)
        path = tmp_path / "model.onnx"
        path.write_bytes(bytes(content))
        try:
            forward = from_onnx(path, check=False)
        except EdgeoptError:
            continue
        assert forward.parameters


def test_functions_that_call_themselves() -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17, "own" : 1]> m (float[n, 3] x) => (float[n, 3] y) <float[3] w = {1, 2, 3}>
    { y = own.f(x, w) }
    <domain: "own", opset_import: ["" : 17, "own" : 1]> f (a, b) => (c) { c = own.f(a, b) }
    """)
    with pytest.raises(UnsupportedModelError, match="cannot be inlined"):
        from_onnx(model)


def test_a_sparse_weight() -> None:
    model = good()
    values = onnx.numpy_helper.from_array(np.asarray([7, 8], np.float32), "w")
    places = onnx.numpy_helper.from_array(np.asarray([0, 5], np.int64), "places")
    model.graph.initializer.pop(0)
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, [3, 2]))
    assert from_onnx(model).parameters["w"].tolist() == [[7, 0], [0, 0], [0, 8]]


def test_weights_beside_the_file(tmp_path: Path) -> None:
    model = good()
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    raw = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    model.graph.ClearField("initializer")
    model.graph.initializer.extend(raw)
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0, location="weights.bin")
    forward = from_onnx(tmp_path / "model.onnx")
    (tmp_path / "weights.bin").unlink()
    assert forward.parameters["w"].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert ("checked", "predict") in [(decision.kind, decision.subject) for decision in forward.decisions]
