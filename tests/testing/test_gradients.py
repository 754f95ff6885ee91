from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from edgeopt.autodiff.registry import RULES
from edgeopt.errors import GradientCheckError, SignatureError, UnsupportedOperatorError
from edgeopt.testing import check_gradients
from edgeopt.tracing import Array, op

X = np.random.default_rng(0).standard_normal((4, 3))
W = np.random.default_rng(1).standard_normal((3, 2))

MODEL = """
<ir_version: 9, opset_import: ["" : 17]>
classifier (float[batch, 3] x) => (float[batch, 2] y)
<float[3, 2] weight = {0.1, -0.2, 0.3, 0.4, 0.5, -0.6}, float[2] bias = {0.5, -0.5}>
{
    scale = Constant <value_float = 0.5> ()
    scaled = Mul(x, scale)
    hidden = Gemm(scaled, weight, bias)
    as_half = Cast <to = 10> (hidden)
    back = Cast <to = 1> (as_half)
    y = Tanh(back)
}
"""


@pytest.fixture
def model() -> onnx.ModelProto:
    return onnx.parser.parse_model(MODEL)


@pytest.fixture
def wrong_tanh() -> Iterator[None]:
    """Tanh with the derivative of something else."""
    right = RULES["Tanh"]
    RULES["Tanh"] = right._replace(apply=lambda n, g: g * n.y)
    yield
    RULES["Tanh"] = right


def test_a_model_and_its_initializers(model: onnx.ModelProto) -> None:
    """Everything becomes float64, so that a detour through float16 disturbs no difference."""
    errors = check_gradients(model, {"x": X})
    assert set(errors) == {"x", "weight", "bias"}
    assert max(errors.values()) < 1e-8


def test_a_file_and_an_ir_model(model: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    expected = check_gradients(model, [X], wrt=["weight"])
    assert check_gradients(path, [X], wrt=["weight"]) == expected
    assert check_gradients(str(path), [X], wrt=["weight"]) == expected
    assert check_gradients(ir.serde.deserialize_model(model), [X], wrt=["weight"]) == expected


def test_a_function_of_traced_arrays() -> None:
    check_gradients(lambda x, w: op.Tanh(op.MatMul(x, w)), [X, W])
    check_gradients(lambda x, w: (op.Tanh(x), op.Exp(w)), {"x": X, "w": W}, shapes={"x": ("batch", 3)})


@pytest.mark.parametrize("order", [2, 3])
def test_gradients_of_gradients(order: int) -> None:
    errors = check_gradients(lambda x, w: op.Tanh(op.MatMul(x, w)), [X, W], order=order)
    assert {"input_0", "input_1"} < set(errors)


def test_dropout_keeps_its_mask() -> None:
    check_gradients(lambda x: op.Dropout(x, 0.5, np.bool_(True)), [X])


def test_integers_are_left_alone() -> None:
    check_gradients(lambda w, tokens: op.Gather(w, tokens), [W, np.asarray([0, 2, 2])])


def test_a_tensor_without_influence_has_gradient_zero() -> None:
    assert check_gradients(lambda x, w: op.Exp(x), [X, W])["input_1"] == 0.0


def test_a_model_whose_inputs_have_no_influence_at_all() -> None:
    assert check_gradients(lambda x: op.Ceil(x), [X]) == {"input_0": 0.0}


def test_a_model_that_folds_to_nothing() -> None:
    text = """
    <ir_version: 9, opset_import: ["" : 20]>
    nothing (float[1] x, float[1] z) => (float[2] y, float[1] z) <int64[2] c = {1, 2}> { y = Cast<to = 1>(c) }
    """
    assert check_gradients(onnx.parser.parse_model(text), [np.ones(1), np.ones(1)])["x"] == 0.0


def test_inputs_of_every_floating_type_are_converted() -> None:
    """The scales of a Resize are float32 in a float64 model too."""
    text = """
    <ir_version: 9, opset_import: ["" : 20]>
    resized (bfloat16[1, 1, 2] x, float[3] scales, float16[1] y) => (bfloat16[1, 1, 4] z, float16[1] w) {
        z = Resize<mode="nearest">(x, , scales)
        w = Exp(y)
    }
    """
    model = onnx.parser.parse_model(text)
    inputs = [np.ones((1, 1, 2), ir.DataType.BFLOAT16.numpy()), np.asarray([1, 1, 2], np.float32), np.ones(1)]
    assert set(check_gradients(model, inputs, wrt=["y"])) == {"y"}


@pytest.mark.usefixtures("wrong_tanh")
def test_a_wrong_rule_is_found_and_its_node_named() -> None:
    def function(x: Array, w: Array) -> Array:
        return op.Softmax(op.Exp(op.Tanh(op.MatMul(x, w))))

    with pytest.raises(GradientCheckError) as caught:
        check_gradients(function, [X, W])
    message = str(caught.value)
    assert "'input_0'" in message or "'input_1'" in message
    assert "Tanh 'tanh'" in message
    assert "input 'matmul'" in message


@pytest.mark.usefixtures("wrong_tanh")
def test_the_node_is_named_in_a_model_too(model: onnx.ModelProto) -> None:
    model.graph.node[-1].name = "the last one"
    with pytest.raises(GradientCheckError, match="Tanh 'the last one'"):
        check_gradients(model, [X])


def test_an_error_in_putting_gradients_together_is_told_from_one_in_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two uses of a tensor, of which the engine is made to forget one."""
    monkeypatch.setattr("edgeopt.autodiff.engine._accumulate", lambda all_of_them: (all_of_them or [None])[0])
    with pytest.raises(GradientCheckError, match="gradient of each node by itself is right"):
        check_gradients(lambda x: op.Tanh(x) + op.Sin(x), [X])


@pytest.mark.parametrize("bend", [1e-4, 1e-5])
def test_the_tolerance_decides(bend: float) -> None:
    """A gradient that is wrong by a small factor."""
    right = RULES["Exp"]
    RULES["Exp"] = right._replace(apply=lambda n, g: g * n.y * (1 + bend))
    try:
        check_gradients(lambda x: op.Exp(x), [X], tolerance=3 * bend)
        with pytest.raises(GradientCheckError):
            check_gradients(lambda x: op.Exp(x), [X])
    finally:
        RULES["Exp"] = right


def test_large_numbers_have_large_steps() -> None:
    """The softmax bends on a scale of one however large its operand is."""
    check_gradients(lambda x: op.Softmax(x), [np.asarray([0.0, 1.0, 2.0]) + 1e4])


def test_infinities_are_left_out() -> None:
    """A mask that is an output beside what it masks."""

    def masked(x: Array) -> tuple[Array, Array]:
        scores = op.Where(x.tracer.constant(X > 0), x, np.asarray(-np.inf))
        return scores, op.Softmax(scores, axis=0)

    check_gradients(masked, [X])


def test_zeros_of_a_shape_are_float64_too() -> None:
    text = """
    <ir_version: 9, opset_import: ["" : 20]>
    shifted (float[n] x) => (float[n] y) { shape = Shape(x) zeros = ConstantOfShape(shape) y = Sub(zeros, x) }
    """
    assert check_gradients(onnx.parser.parse_model(text), [X[0]])["x"] < 1e-8


def test_a_gradient_of_nan_is_an_error() -> None:
    """An output of NaN is not."""
    with pytest.raises(GradientCheckError):
        check_gradients(lambda x: op.Sqrt(x), [np.asarray([-1.0, 1.0])])
    check_gradients(lambda x: op.Identity(x), [np.asarray([np.nan, 1.0])])


@pytest.mark.parametrize(
    ("inputs", "wrt", "message"),
    [
        ([], None, "takes the inputs x"),
        ([X, X], None, "takes the inputs x"),
        ({"z": X}, None, "takes the inputs x"),
        ([X], ["z"], "is named z"),
    ],
)
def test_inputs_that_do_not_fit(inputs: Any, wrt: Any, message: str, model: onnx.ModelProto) -> None:
    with pytest.raises(SignatureError, match=message):
        check_gradients(model, inputs, wrt=wrt)


def test_unsupported_operators_are_named() -> None:
    with pytest.raises(UnsupportedOperatorError, match="Unique"):
        check_gradients(lambda x: op.Unique(x), [X])


def test_functions_are_inlined(model: onnx.ModelProto) -> None:
    text = """
    <ir_version: 9, opset_import: ["" : 20, "local" : 1]>
    caller (float[n] x) => (float[n] y) { y = local.twice(x) }
    <domain: "local", opset_import: ["" : 20]>
    twice (a) => (b) { c = Exp(a) b = Add(c, c) }
    """
    assert check_gradients(onnx.parser.parse_model(text), [X[0]])["x"] < 1e-8


def test_results_depend_on_the_seed_only() -> None:
    first, again, other = (check_gradients(lambda x: op.Exp(x), [X], seed=seed) for seed in (0, 0, 1))
    assert first == again != other
