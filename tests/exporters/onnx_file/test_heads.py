"""New last layers on files, and files cut short: what is kept computes what it did, and what is new trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

import edgeopt
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.graph import cut, replace_head
from edgeopt_exporters.onnx_file import proposals_of

RANDOM = np.random.default_rng(0)


def file(
    body: str, inputs: str = "float[n, 4] x", output: str = "float[n, 3] y", opset: int = 17, **shapes: Any
) -> Any:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> model ({inputs}) => ({output}) {{ {body} }}'
    )
    for name, shape in shapes.items():
        array = RANDOM.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def run(model: onnx.ModelProto, **feeds: Any) -> Any:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


LINEAR = file("h = Gemm(x, a) r = Relu(h) s = Gemm(r, w, b) y = Softmax(s)", a=(4, 6), w=(6, 3), b=(3,))
TOKENS = file(
    "h = MatMul(x, a) s = MatMul(h, w) t = Add(s, b) y = Softmax(t)",
    "float[n, t, 4] x",
    "float[n, t, 3] y",
    a=(4, 6),
    w=(6, 3),
    b=(3,),
)
IMAGES = file(
    "h = Conv(x, a) r = Relu(h) s = Conv(r, w) p = GlobalAveragePool(s) f = Flatten(p) y = Softmax(f)",
    "float[n, 2, 5, 5] x",
    a=(6, 2, 3, 3),
    w=(3, 6, 1, 1),
)
WRITTEN = file(
    "h = Gemm(x, a) s = Gemm(h, w) m = ReduceMax<axes = [1]>(s) d = Sub(s, m) e = Exp(d) "
    "t = ReduceSum(e, k) y = Div(e, t)",
    a=(4, 6),
    w=(6, 3),
)
WRITTEN.graph.initializer.append(numpy_helper.from_array(np.array([1]), "k"))
SIDEWAYS = file("h = Gemm(x, a) s = Gemm(h, w, b) y = Add(s, x)", output="float[n, 4] y", a=(4, 6), w=(6, 4), b=(4,))
X = RANDOM.standard_normal((2, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("model", "features", "x"),
    [
        (LINEAR, "r", X),
        (TOKENS, "h", RANDOM.standard_normal((2, 7, 4)).astype(np.float32)),
        (IMAGES, "r", RANDOM.standard_normal((2, 2, 5, 5)).astype(np.float32)),
        (WRITTEN, "h", X),
    ],
    ids=["linear", "tokens", "images", "written"],
)
@pytest.mark.parametrize("bias", [True, False])
def test_the_new_layer_is_linear_in_the_features(model: onnx.ModelProto, features: str, x: Any, bias: bool) -> None:
    found = replace_head(model, 5, bias=bias, seed=3)
    weights = {each.name: numpy_helper.to_array(each) for each in found.graph.initializer}
    read = run(cut(model, features), x=x)
    if read.ndim == 4:
        read = read.mean((2, 3))
    expected = read @ weights["head.weight"].T + (weights["head.bias"] if bias else 0.0)
    np.testing.assert_allclose(run(found, x=x), expected, rtol=1e-5, atol=1e-6)
    assert ("head.bias" in weights) == bias
    assert abs(weights["head.weight"]).max() <= 1 / np.sqrt(6)
    # What only the old layer needed is gone.
    assert {"w", "b"}.isdisjoint(weights)


def test_the_new_layer_alone_trains_in_a_bundle() -> None:
    bundle = edgeopt.export(
        replace_head(LINEAR, 5), loss="cross_entropy", optimizer="sgd:lr=0.5", trainable="head.*", verbose=False
    )
    session, rows = bundle.session(), RANDOM.standard_normal((20, 4)).astype(np.float32)
    batch = {"x": rows, "target": (rows[:, 0] > 0) + 2 * (rows[:, 1] > 0)}
    before = session.parameters()
    losses = [session.step(batch)["loss"] for _ in range(20)]
    assert losses[-1] < 0.8 * losses[0]
    np.testing.assert_array_equal(before["a"], session.parameters()["a"])


def test_any_tensor_makes_features_by_its_own_name_or_that_of_its_node() -> None:
    found = replace_head(LINEAR, 2, at="h", name="other", output="scores")
    assert [node.op_type for node in found.graph.node] == ["Gemm", "Gemm"]
    assert [value.name for value in found.graph.output] == ["scores"]
    node = next(node for node in LINEAR.graph.node if node.op_type == "Relu")
    named = onnx.ModelProto()
    named.CopyFrom(LINEAR)
    named.graph.node[list(LINEAR.graph.node).index(node)].name = "activation"
    np.testing.assert_array_equal(run(cut(named, "activation"), x=X), run(cut(LINEAR, "r"), x=X))


def test_files_from_before_ir_4_and_opset_7_and_their_given_names(tmp_path: Path) -> None:
    old = file("s = Gemm(x, w, b) y = Softmax(s)", opset=7, w=(4, 3), b=(3,))
    old.ir_version = 3
    for name, shape in {"w": (4, 3), "b": (3,)}.items():
        old.graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    onnx.save(old, tmp_path / "old.onnx")
    found = replace_head(tmp_path / "old.onnx", 2, bias=False)
    assert [value.name for value in found.graph.input] == ["x"]
    assert run(found, x=X).shape == (2, 2)


def test_a_second_replacement_takes_the_place_of_the_first() -> None:
    again = replace_head(replace_head(LINEAR, 5), 7)
    assert run(again, x=X).shape == (2, 7)
    assert [each.name for each in again.graph.initializer].count("head.weight") == 1


def test_cut_keeps_what_several_ends_need_and_nothing_else() -> None:
    found = cut(IMAGES, ["r", "p"])
    assert [value.name for value in found.graph.output] == ["r", "p"]
    short = cut(IMAGES, "r")
    assert [each.name for each in short.graph.initializer] == ["a"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: replace_head(SIDEWAYS, 3), r"No last layer can be made out before the output 'y'.*at=\.\.\."),
        (lambda: replace_head(LINEAR, 3, at="relu"), "no tensor or node 'relu'; "),
        (lambda: replace_head(IMAGES, 3, name="x", output="x"), r"tensors called \['x'\]"),
        (lambda: cut(LINEAR, "hh"), "did you mean 'h'"),
    ],
)
def test_what_cannot_be_done_is_refused(change: Any, message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        change()


@pytest.mark.parametrize("classes", [0, -1, 2.5])
def test_a_number_of_classes_is_asked_for(classes: Any) -> None:
    with pytest.raises(ConfigurationError, match="classes must be a whole number above 0"):
        replace_head(LINEAR, classes)


def test_proposals_go_from_cheap_to_dear() -> None:
    model = file(
        "h = Conv(x, w1, b1) n = BatchNormalization(h, gain, shift, mean, var) r = Relu(n) c = Conv(r, w2) "
        "p = GlobalAveragePool(c) f = Flatten(p) l = Gemm(f, w3, b3) y = Softmax(l)",
        "float[n, 2, 5, 5] x",
        w1=(4, 2, 3, 3),
        b1=(4,),
        gain=(4,),
        shift=(4,),
        mean=(4,),
        var=(4,),
        w2=(6, 4, 1, 1),
        w3=(6, 3),
        b3=(3,),
    )
    found = {one.name: one for one in proposals_of(model)}
    assert list(found) == ["last layer", "normalisations", "biases", "everything"]
    assert found["last layer"].parameters == ("w3", "b3")
    assert found["normalisations"].parameters == ("gain", "shift")
    assert set(found["biases"].parameters) == {"b1", "shift", "b3"}
    assert [one.layers for one in found.values()] == [1, 2, 3, 3]
    assert {one.of for one in found.values()} == {3}
    assert found["everything"].elements == 72 + 4 + 8 + 24 + 18 + 3
    bundle = edgeopt.export(
        model, loss="cross_entropy", optimizer="adamw:lr=0.1", trainable=found["biases"].parameters, verbose=False
    )
    assert {spec.name for spec in bundle.manifest.tensors if spec.trainable} == {"b1", "shift", "b3"}
