"""What of an ONNX file becomes a parameter, a buffer, a constant; and in which mode it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest

import edgeopt
from edgeopt.bundle import Bundle
from edgeopt.errors import SignatureError, UnsupportedModelError, UnsupportedOperatorError
from edgeopt_exporters.onnx_file import from_onnx
from edgeopt_runtime import TrainingSession


def file(body: str, head: str = 'opset_import: ["" : 17]', version: int = 8) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"<ir_version: {version}, {head}> {body}")


def trained(bundle: Bundle, folder: Path, batch: Mapping[str, Any], steps: int = 20) -> tuple[list[float], Any]:
    bundle.save(folder / "bundle")
    session = TrainingSession.load(folder / "bundle")
    return [float(session.step(batch)["loss"]) for _ in range(steps)], session


@pytest.fixture
def export() -> Callable[..., Bundle]:
    def call(model: Any, *examples: Any, **settings: Any) -> Bundle:
        return edgeopt.export(
            model, *examples, loss=edgeopt.losses.MSE(), optimizer=edgeopt.optimizers.SGD(lr=0.1), **settings
        )

    return call


PERCEPTRON = """
model (float[n, 3] x) => (float[n, 2] p)
<float[3, 4] w1 = {1, -2, 3, 4, 5, -6, 7, 8, -9, 1, -1, 2}, float[4] b1 = {1, 2, 3, 4},
 float[4, 2] w2 = {0.1, 0.2, -0.3, 0.4, -0.5, 0.6, 0.7, -0.8}, float[2] b2 = {0.5, 1}> {
    h = Gemm(x, w1, b1)
    a = Relu(h)
    y = Gemm(a, w2, b2)
    p = Softmax<axis = 1>(y)
}
"""
BATCH = {"x": np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)}


@pytest.mark.parametrize("kind", ["path", "text", "proto", "ir"])
def test_the_same_file_in_every_form(export: Callable[..., Bundle], tmp_path: Path, kind: str) -> None:
    proto = file(PERCEPTRON)
    onnx.save(proto, tmp_path / "model.onnx")
    forms = {
        "path": tmp_path / "model.onnx",
        "text": str(tmp_path / "model.onnx"),
        "proto": proto,
        "ir": ir.serde.deserialize_model(proto),
    }
    bundle = export(forms[kind])
    assert [spec.name for spec in bundle.manifest.tensors if spec.trainable] == ["w1", "b1", "w2", "b2"]
    assert bundle.manifest.inputs[0].shape == ("n", 3)
    losses, _ = trained(bundle, tmp_path, {**BATCH, "target": np.eye(2, dtype=np.float32)[[0, 1, 1, 0, 1]]})
    assert losses[-1] < losses[0]


def test_a_tensor_inside_the_file_takes_the_loss(export: Callable[..., Bundle], tmp_path: Path) -> None:
    """The logits; `predict` returns what the file returns, and them."""
    bundle = edgeopt.export(
        file(PERCEPTRON), loss=edgeopt.losses.CrossEntropy(), optimizer=edgeopt.optimizers.SGD(lr=0.1), output="y"
    )
    losses, session = trained(bundle, tmp_path, {**BATCH, "target": np.asarray([0, 1, 1, 0, 1])})
    assert losses[-1] < losses[0]
    predictions = session.predict(BATCH)
    assert set(predictions) == {"p", "y"}
    exponentials = np.exp(predictions["y"])
    np.testing.assert_allclose(predictions["p"], exponentials / exponentials.sum(1, keepdims=True), rtol=1e-5)


def test_an_output_that_is_nowhere(export: Callable[..., Bundle]) -> None:
    with pytest.raises(SignatureError, match="no tensor 'z'"):
        export(file(PERCEPTRON), output="z")


def test_predictions_before_training_are_those_of_the_file(export: Callable[..., Bundle], tmp_path: Path) -> None:
    model = file(PERCEPTRON)
    _, session = trained(export(model), tmp_path, BATCH, steps=0)
    reference = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.predict(BATCH), reference.run(None, BATCH)[0], rtol=1e-6)


def test_weights_in_constants_branches_and_fills() -> None:
    """As in files of Paddle and of spox, and in those whose weights were taken out."""
    model = file("""
    model (float[n, 3] x, bool training) => (float[n, 3] y) <int64[2] shape = {3, 3}, bool yes = {1}> {
        w = Constant<value = float[3] {1, 2, 3}>()
        filled = ConstantOfShape<value = float[1] {0.5}>(shape)
        h = Mul(x, w)
        m = MatMul(h, filled)
        y = If(yes) <
            then_branch = one () => (float[n, 3] t) {
                inner = Constant<value = float[3] {4, 5, 6}>()
                t = Add(m, inner)
            },
            else_branch = two () => (float[n, 3] e) {
                never = Constant<value = float[3] {7, 8, 9}>()
                e = Add(m, never)
            }
        >
    }
    """)
    forward = from_onnx(model)
    assert {name: array.tolist() for name, array in forward.parameters.items()} == {
        "w": [1, 2, 3],
        "filled": [[0.5] * 3] * 3,
        "inner": [4, 5, 6],
    }
    assert "If" not in [node.op_type for node in forward.train.model.graph]


def test_initializers_that_are_inputs_too() -> None:
    model = file(
        "model (float[n, 2] x, float[2] w) => (float[n, 2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }",
        'opset_import: ["" : 9]',
        version=3,
    )
    forward = from_onnx(model)
    assert forward.train.inputs == ("x",)
    assert set(forward.parameters) == {"w"}


def test_what_is_no_weight_stays_a_constant() -> None:
    """Bounds, an epsilon, scales of a Resize, a mask; fixed numbers of the data are weights only by name."""
    model = file("""
    model (float[n, 1, 2, 2] x) => (float[n, 1, 4, 4] y)
    <float low = {0}, float epsilon = {0.001}, float[4] scales = {1, 1, 2, 2}, float[2] mask = {0, -1e30},
     float[2] mean = {0.5, 0.25}, float[1, 1, 1, 1] kernel = {2}> {
        centred = Sub(x, mean)
        masked = Add(centred, mask)
        clipped = Clip(masked, low)
        positive = Add(clipped, epsilon)
        resized = Resize(positive, , scales)
        y = Conv(resized, kernel)
    }
    """)
    forward = from_onnx(model)
    assert set(forward.parameters) == {"mean", "kernel"}
    assert forward.frozen == {"mean"}


def test_the_bias_of_one_unit_is_a_weight() -> None:
    model = file("""
    model (float[n, 2] x) => (float[n, 1] y) <float[2, 1] w = {1, 2}, float[1] b = {0}, float[1] one = {1}> {
        h = MatMul(x, w)
        s = Add(b, h)
        y = Add(s, one)
    }
    """)
    assert set(from_onnx(model).parameters) == {"w", "b"}


NORMALISED = """
model (float[n, 2, 3] x) => (float[n, 2, 3] y)
<float[2] gain = {1, 1}, float[2] shift = {0, 0}, float[2] mean = {0.5, -0.5}, float[2] var = {2, 3}> {
    h = BatchNormalization(x, gain, shift, mean, var)
    y = Dropout(h)
}
"""


@pytest.mark.parametrize("mode", ["file", "frozen", "train"])
def test_batch_normalisation(export: Callable[..., Bundle], tmp_path: Path, mode: str) -> None:
    """An inference file has frozen statistics unless told otherwise; evaluation always uses the running ones."""
    model = file(NORMALISED.replace("y = Dropout(h)", "y = Identity(h)"))
    bundle = export(model, batch_norm=mode)
    assert {spec.name: spec.role for spec in bundle.manifest.tensors if spec.role in ("parameter", "buffer")} == {
        "gain": "parameter",
        "shift": "parameter",
        "mean": "buffer",
        "var": "buffer",
    }
    x = np.random.default_rng(1).standard_normal((8, 2, 3)).astype(np.float32)
    losses, session = trained(bundle, tmp_path, {"x": x, "target": np.tanh(x)}, steps=10)
    assert losses[-1] < losses[0]
    state = session.state()
    mean, var = state["mean"], state["var"]
    if mode == "train":
        expected = x.mean((0, 2)) + 0.9**10 * (np.asarray([0.5, -0.5]) - x.mean((0, 2)))
        np.testing.assert_allclose(mean, expected, rtol=1e-5)
    else:
        assert mean.tolist() == [0.5, -0.5]
    normal = (x - mean[:, None]) / np.sqrt(var[:, None] + 1e-5)
    expected = normal * state["gain"][:, None] + state["shift"][:, None]
    np.testing.assert_allclose(session.predict({"x": x}), expected, rtol=1e-4, atol=1e-5)


def test_a_file_in_training_mode_keeps_it() -> None:
    text = NORMALISED.replace("h = BatchNormalization(", "h, m, v = BatchNormalization<training_mode = 1>(")
    assert from_onnx(file(text)).train.updated_buffers == ("mean", "var")
    assert from_onnx(file(text), batch_norm="frozen").train.updated_buffers == ()


def test_dropout_drops_in_training_only() -> None:
    forward = from_onnx(file(NORMALISED))
    assert "Dropout" in [node.op_type for node in forward.train.model.graph]
    assert "Dropout" not in [node.op_type for node in forward.evaluate.model.graph]
    assert "Dropout" not in [node.op_type for node in from_onnx(file(NORMALISED), dropout=False).train.model.graph]


def test_old_dropout_has_its_ratio(export: Callable[..., Bundle], tmp_path: Path) -> None:
    text = "model (float[n, 2000] x) => (float[n, 2000] y) <float[2, 2] w = {1, 0, 0, 1}> { BODY }"
    body = "h = Reshape(x, pairs) k = MatMul(h, w) d = Dropout<ratio = 0.2>(k) y = Reshape(d, rows)"
    text = text.replace("BODY", body).replace("<float", "<int64[2] pairs = {-1, 2}, int64[2] rows = {-1, 2000}, float")
    x = np.ones((4, 2000), np.float32)
    _, session = trained(export(file(text, 'opset_import: ["" : 9]')), tmp_path, {}, steps=0)
    assert session.predict({"x": x}).tolist() == x.tolist()
    # Survivors are 1.25, and count with probability 0.8.
    assert session.step({"x": x, "target": 0 * x})["loss"] == pytest.approx(1.25, abs=0.05)


def test_statistics_are_untied_from_parameters() -> None:
    """Exporters merge equal initializers, and gain and variance begin as ones; tied embeddings stay tied."""
    model = file("""
    model (int64[n, 3] ids) => (float[n, 3, 4] y)
    <float[4, 2] table = {1, 2, 3, 4, 5, 6, 7, 8}, float[3] ones = {1, 1, 1}, float[3] zeros = {0, 0, 0}> {
        e = Gather(table, ids)
        first = BatchNormalization(e, ones, zeros, zeros, ones)
        second = BatchNormalization(first, ones, zeros, zeros, ones)
        head = Transpose<perm = [1, 0]>(table)
        y = MatMul(second, head)
    }
    """)
    for node in model.graph.node:
        node.name = node.output[0]
    forward = from_onnx(model)
    assert set(forward.parameters) == {"table", "ones", "ones.second", "zeros", "zeros.second"}
    assert set(forward.buffers) == {
        *("first.running_mean", "first.running_var", "second.running_mean", "second.running_var")
    }


def test_other_names_of_merged_initializers_come_back() -> None:
    """torch's older exporter leaves an Identity with the name that a parameter had."""
    model = file("""
    model (float[n, 2] x) => (float[n, 2] y) <float[2] first = {0, 0}, float[2, 2] w = {1, 2, 3, 4}> {
        second = Identity(first)
        v = Identity(w)
        h = Gemm(x, w, first)
        y = Gemm(h, v, second)
    }
    """)
    assert set(from_onnx(model).parameters) == {"first", "second", "w"}


def test_a_file_for_one_example_takes_many(export: Callable[..., Bundle], tmp_path: Path) -> None:
    """Also where a Reshape has their number written down."""
    text = """
    model (float[1, 2, 3] x) => (float[1, 4] y) <int64[2] flat = {1, 6}, float[6, 4] w = {}> {
        h = Reshape(x, flat)
        y = MatMul(h, w)
    }
    """
    model = file(text)
    w = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    model.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(w, "w"))
    bundle = export(model)
    assert bundle.manifest.inputs[0].shape == ("batch", 2, 3)
    x = np.random.default_rng(0).standard_normal((5, 2, 3)).astype(np.float32)
    _, session = trained(bundle, tmp_path, {}, steps=0)
    np.testing.assert_allclose(session.predict({"x": x}), x.reshape(5, 6) @ w, rtol=1e-5)
    assert export(model, dynamic_batch=False).manifest.inputs[0].shape == (1, 2, 3)


def test_a_file_that_mixes_its_examples_keeps_their_number(export: Callable[..., Bundle]) -> None:
    text = "model (float[2, 3] x) => (float[1, 3] y) <float[3] w = {1, 2, 3}> { h = Mul(x, w) MIXING }"
    for mixing in ("y = ReduceSum(h, axes)", "y = MatMul(pair, h)"):
        model = file(
            text.replace("MIXING", mixing).replace("<float", "<int64[1] axes = {0}, float[1, 2] pair = {1, 1}, float")
        )
        assert export(model, trainable="w").manifest.inputs[0].shape == (2, 3)


def test_sizes_by_examples_and_names(export: Callable[..., Bundle]) -> None:
    model = file("model (float[N, ?, k] x) => (float[N, ?, k] y) <float[1, 1, 2] w = {1, 2}> { y = Mul(x, w) }")
    assert export(model).manifest.inputs[0].shape == ("N", "x_dim_1", "k")
    example = np.zeros((4, 3, 2))
    assert export(model, example).manifest.inputs[0].shape == ("N", 3, 2)
    assert export(model, [example], dynamic_batch=False).manifest.inputs[0].shape == (4, 3, 2)
    named = export(model, {"x": example}, dynamic_shapes={"x": {1: "time"}})
    assert named.manifest.inputs[0].shape == ("N", "time", 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"example_inputs": np.zeros((2, 4))}, r"has shape \(2, 4\)"),
        ({"example_inputs": [0, 0]}, "2 examples"),
        ({"example_inputs": {"y": 0}}, "example_inputs names 'y'"),
        ({"dynamic_shapes": {"y": {0: "n"}}}, r"dynamic_shapes names \['y'\]"),
        ({"dynamic_shapes": {"x": {2: "n"}}}, "axis 2 of 'x'"),
        ({"fixed_inputs": {"y": 1}}, "fixed_inputs names 'y'"),
    ],
)
def test_settings_that_do_not_fit(export: Callable[..., Bundle], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        export(file(PERCEPTRON), **settings)


def test_a_fixed_input_decides_a_branch() -> None:
    model = file("""
    model (float[n, 2] x, int64 rate) => (float[n, 2] y) <int64 high = {16000}> {
        is_high = Equal(rate, high)
        y = If(is_high) <
            then_branch = one () => (float[n, 2] t) { w = Constant<value = float[2] {1, 2}>() t = Mul(x, w) },
            else_branch = two () => (float[n, 2] e) { v = Constant<value = float[2] {3, 4}>() e = Mul(x, v) }
        >
    }
    """)
    assert set(from_onnx(model, fixed_inputs={"rate": 16000}).parameters) == {"w"}
    assert set(from_onnx(model, fixed_inputs={"rate": 8000}).parameters) == {"v"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "model (float[n, 2] x) => (int64[n] y, float[n, 2] p) { y, p = ai.onnx.ml.TreeEnsembleClassifier(x) }",
            r"ai.onnx.ml::TreeEnsembleClassifier \(node 'TreeEnsembleClassifier_y'\): decision trees",
        ),
        (
            "model (uint8[n, 2] x) => (int32[n, 2] y) <uint8[2, 2] w = {1, 2, 3, 4}> { y = MatMulInteger(x, w) }",
            r"MatMulInteger \(node 'MatMulInteger_y'\): it computes with integers",
        ),
        ("model (float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }", "no floating-point weight"),
    ],
)
def test_files_with_nothing_to_train(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        from_onnx(file(text, 'opset_import: ["" : 17, "ai.onnx.ml" : 3]'))


def test_something_else_than_an_onnx_file(export: Callable[..., Bundle], tmp_path: Path) -> None:
    (tmp_path / "notes.onnx").write_text("not a model", encoding="utf-8")
    for path in (tmp_path / "notes.onnx", tmp_path / "missing.onnx"):
        with pytest.raises(UnsupportedModelError, match="cannot be read"):
            export(path)
    with pytest.raises(UnsupportedModelError, match="Cannot export 3"):
        export(3)


def test_behind_integer_kernels_a_float_layer_trains(export: Callable[..., Bundle], tmp_path: Path) -> None:
    """What is in front of what trains may be anything that the runtime has."""
    model = file("""
    model (uint8[n, 2] x) => (float[n, 2] y)
    <uint8[2, 3] q = {1, 2, 3, 4, 5, 6}, float scale = {0.01}, float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {0, 1}>
    {
        product = MatMulInteger(x, q)
        floats = Cast<to = 1>(product)
        h = Mul(floats, scale)
        y = Gemm(h, w, b)
    }
    """)
    x = np.asarray([[1, 2], [3, 4], [5, 6]], np.uint8)
    losses, _ = trained(export(model), tmp_path, {"x": x, "target": np.zeros((3, 2), np.float32)})
    assert losses[-1] < losses[0]


def test_in_front_of_integer_kernels_nothing_trains(export: Callable[..., Bundle]) -> None:
    model = file("""
    model (float[n, 2] x) => (float[n, 3] y) <float[2] front = {1, 2}, uint8[2, 3] q = {1, 2, 3, 4, 5, 6}> {
        h = Mul(x, front)
        quantized, scale, zero = DynamicQuantizeLinear(h)
        product = MatMulInteger(quantized, q, zero)
        floats = Cast<to = 1>(product)
        y = Mul(floats, scale)
    }
    """)
    with pytest.raises(UnsupportedOperatorError, match=r"DynamicQuantizeLinear[\s\S]*computes with integers"):
        export(model)
