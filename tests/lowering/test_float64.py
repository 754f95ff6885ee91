"""Values of float64 lowerings against torch and scipy; their gradients are those of the rules, tested there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from scipy import special
from torch.nn import functional

from edgeopt import tracing
from edgeopt.lowering import float64, windows
from edgeopt.lowering.registry import LOWERINGS
from edgeopt.testing.programs import Program, load
from edgeopt.tracing import Array, op

X = np.concatenate([np.linspace(-8, 8, 301), np.logspace(-12, 0, 50), -np.logspace(-12, 0, 50), [0.0, 40.0, -40.0]])

UNARY: list[tuple[str, Callable[[Any], Any], dict[str, Any]]] = [
    ("Erf", special.erf, {}),
    ("Gelu", lambda x: x * 0.5 * special.erfc(-x / np.sqrt(2)), {}),
    ("Gelu", lambda x: functional.gelu(torch.tensor(x), approximate="tanh").numpy(), {"approximate": "tanh"}),
    ("Softplus", lambda x: np.logaddexp(x, 0), {}),
    ("Mish", lambda x: x * np.tanh(np.logaddexp(x, 0)), {}),
    ("Elu", lambda x: np.where(x > 0, x, 1.5 * np.expm1(x)), {"alpha": 1.5}),
    ("Selu", lambda x: functional.selu(torch.tensor(x)).numpy(), {}),
    ("LeakyRelu", lambda x: np.where(x > 0, x, 0.25 * x), {"alpha": 0.25}),
    ("ThresholdedRelu", lambda x: np.where(x > 0.5, x, 0), {"alpha": 0.5}),
    ("Shrink", lambda x: np.where(np.abs(x) > 0.75, x - np.sign(x) * 0.25, 0), {"lambd": 0.75, "bias": 0.25}),
    ("HardSigmoid", lambda x: np.clip(0.2 * x + 0.5, 0, 1), {}),
    ("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), {}),
    ("Softsign", lambda x: x / (1 + np.abs(x)), {}),
    ("Cos", np.cos, {}),
    ("Tan", np.tan, {}),
    ("Atan", np.arctan, {}),
    ("Asinh", np.arcsinh, {}),
]


@pytest.mark.parametrize(("operator", "reference", "how"), UNARY, ids=[f"{row[0]}-{i}" for i, row in enumerate(UNARY)])
def test_elementwise(
    operator: str, reference: Callable[[Any], Any], how: dict[str, Any], lowered: Callable[..., Any]
) -> None:
    # ONNX attributes are float32; the constants of Selu are exact in it, others here are chosen to be.
    model = lowered(lambda arrays: {"y": getattr(op, operator)(arrays["x"], **how)}, {"x": X})
    expected = reference(X)
    tolerance = {"HardSigmoid": 1e-7, "Selu": 1e-7, "Tan": 1e-13}.get(operator, 1e-14)
    np.testing.assert_allclose(model.run()["y"], expected, rtol=tolerance, atol=max(tolerance, 1e-13))


UNIT = np.concatenate([np.linspace(-1, 1, 201)[1:-1], [1e-10, -1e-10]])
ON_INTERVALS: list[tuple[str, Callable[[Any], Any], Any]] = [
    ("Asin", np.arcsin, UNIT),
    ("Acos", np.arccos, UNIT),
    ("Atanh", np.arctanh, UNIT),
    ("Sinh", np.sinh, 5 * UNIT),
    ("Cosh", np.cosh, 5 * UNIT),
    ("Acosh", np.arccosh, 3 + UNIT),
]


@pytest.mark.parametrize(("operator", "reference", "x"), ON_INTERVALS, ids=[row[0] for row in ON_INTERVALS])
def test_on_intervals(operator: str, reference: Callable[[Any], Any], x: Any, lowered: Callable[..., Any]) -> None:
    model = lowered(lambda arrays: {"y": getattr(op, operator)(arrays["x"])}, {"x": x})
    np.testing.assert_allclose(model.run()["y"], reference(x), rtol=1e-13, atol=1e-14)


def test_erf_is_accurate_to_the_last_digits_relative_to_itself(lowered: Callable[..., Any]) -> None:
    model = lowered(lambda arrays: {"y": op.Erf(arrays["x"])}, {"x": X})
    np.testing.assert_allclose(model.run()["y"], special.erf(X), rtol=4e-15)


RANDOM = np.random.default_rng(0)
A, B, S = RANDOM.standard_normal((4, 3, 5, 2)), RANDOM.standard_normal((3, 5, 2)), RANDOM.standard_normal(3)
MULTIPLE: list[tuple[str, Callable[..., Array], Callable[..., Any], list[Any]]] = [
    ("PRelu", lambda x, s: op.PRelu(x, s), lambda x, s: np.where(x > 0, x, s * x), [A, B]),
    ("Mean", lambda x, y: op.Mean(x, y), lambda x, y: (x + y) / 2, [A, B]),
    ("ReduceL2", lambda x: op.ReduceL2(x, [1, 2]), lambda x: np.sqrt((x * x).sum((1, 2), keepdims=True)), [A]),
    ("GlobalAveragePool", lambda x: op.GlobalAveragePool(x), lambda x: x.mean((2, 3), keepdims=True), [A]),
    ("ReduceProd", lambda x: op.ReduceProd(x, [1, 2]), lambda x: x.prod((1, 2), keepdims=True), [A]),
    (
        "MeanVarianceNormalization",
        lambda x: op.MeanVarianceNormalization(x),
        lambda x: (x - x.mean((0, 2, 3), keepdims=True)) / (x.std((0, 2, 3), keepdims=True) + 1e-9),
        [A],
    ),
    ("GlobalMaxPool", lambda x: op.GlobalMaxPool(x), lambda x: x.max((2, 3), keepdims=True), [A]),
    (
        "InstanceNormalization",
        lambda x, s, b: op.InstanceNormalization(x, s, b),
        lambda x, s, b: functional.instance_norm(torch.tensor(x), weight=torch.tensor(s), bias=torch.tensor(b)),
        [A, S, S],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "function", "reference", "arrays"), MULTIPLE, ids=[row[0] for row in MULTIPLE])
def test_several_operands(
    operator: str,
    function: Callable[..., Array],
    reference: Callable[..., Any],
    arrays: list[Any],
    lowered: Callable[..., Any],
) -> None:
    named = {f"x_{i}": array for i, array in enumerate(arrays)}
    model = lowered(lambda given: {"y": function(*given.values())}, named)
    assert operator not in model.operators
    np.testing.assert_allclose(model.run()["y"], np.asarray(reference(*arrays)), rtol=1e-10, atol=1e-12)


def test_layer_normalization_with_its_statistics(lowered: Callable[..., Any]) -> None:
    def program(arrays: dict[str, Array]) -> dict[str, Array]:
        outputs = arrays["x"].tracer.emit(
            "LayerNormalization", arrays["x"], arrays["w"], arrays["b"], axis=-2, epsilon=0.5, outputs=1
        )
        return {"y": outputs[0]}

    w, b = RANDOM.standard_normal((2, 5, 2))
    result = lowered(program, {"x": A, "w": w, "b": b}).run()["y"]
    tensors = [torch.tensor(v) for v in (A, w, b)]
    expected = functional.layer_norm(tensors[0], (5, 2), tensors[1], tensors[2], 0.5)
    np.testing.assert_allclose(result, expected.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "between",
    [lambda x, xp: x, lambda x, xp: x / 2.0, lambda x, xp: xp.sqrt(xp.abs(3.0 - x))],
    ids=["directly", "scaled", "bent"],
)
def test_no_product_of_transposed_matrices_is_left_to_be_fused(
    between: Callable[[Any, Any], Any], lowered: Callable[..., Any]
) -> None:
    """ONNX Runtime 1.17 fuses them into an operator that it has in float32 only, and moves them before it does."""
    a, b = RANDOM.standard_normal((2, 3, 4)), RANDOM.standard_normal((2, 5, 4))
    model = lowered(
        lambda arrays: {"y": op.MatMul(arrays["a"], between(op.Transpose(arrays["b"], perm=[0, 2, 1]), tracing))},
        {"a": a, "b": b},
    )
    np.testing.assert_allclose(model.run()["y"], a @ between(b.transpose(0, 2, 1), np), rtol=1e-12, atol=1e-14)
    (product,) = (node for node in model.graph if node.op_type == "MatMul")
    producer = product.inputs[1].producer()
    assert producer is not None
    assert producer.op_type == "Sum"


@pytest.mark.parametrize("operator", ["Relu", "Sigmoid", "Tanh"])
def test_no_activation_of_a_product_is_left_to_be_fused(operator: str, lowered: Callable[..., Any]) -> None:
    """As above."""
    x, w = RANDOM.standard_normal((3, 4)), RANDOM.standard_normal((4, 2))
    model = lowered(lambda arrays: {"y": getattr(op, operator)(op.Gemm(arrays["x"], arrays["w"]))}, {"x": x, "w": w})
    assert model.operators == ["Gemm", "Sum", operator]
    assert model.run()["y"].shape == (3, 2)


def test_no_sigmoid_that_gates_its_own_input_is_left_to_be_fused(lowered: Callable[..., Any]) -> None:
    """As above. Other sigmoids stay."""
    silu = lowered(lambda arrays: {"y": arrays["x"] * op.Sigmoid(arrays["x"])}, {"x": X})
    assert "Sigmoid" not in silu.operators
    scaled = lowered(lambda arrays: {"y": arrays["x"] * op.Sigmoid(arrays["x"] * 1.7)}, {"x": X})
    assert "Sigmoid" not in scaled.operators
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(silu.run()["y"], X / (1 + np.exp(-X)), rtol=1e-14)
    assert "Sigmoid" in lowered(lambda arrays: {"y": op.Sigmoid(arrays["x"]) * 2.0}, {"x": X}).operators


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    ("strides", "pads", "dilations", "group"),
    [([1, 1], [0, 0], [1, 1], 1), ([2, 1], [1, 2], [1, 2], 2), ([3, 2], [1, 1], [1, 1], 4)],
)
@pytest.mark.parametrize("bias", [False, True])
def test_convolutions(
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    group: int,
    bias: bool,
    named: bool,
    lowered: Callable[..., Any],
) -> None:
    x, w = RANDOM.standard_normal((2, 4, 8, 7)), RANDOM.standard_normal((4, 4 // group, 3, 2))
    b = RANDOM.standard_normal(4)
    how: dict[str, Any] = {"strides": strides, "pads": pads * 2, "dilations": dilations, "group": group}

    def program(arrays: dict[str, Array]) -> dict[str, Array]:
        x, w, b = (arrays.get(name) for name in "xwb")
        return {"forward": op.Conv(x, w, b, **how), "transposed": op.ConvTranspose(x, w, b, **how)}

    tx, tw, tb = torch.tensor(x), torch.tensor(w), torch.tensor(b) if bias else None
    given = {"x": x, "w": w, **({"b": b} if bias else {})}
    model = lowered(program, given, {"x": ("batch", 4, "height", "width")} if named else None)
    results = model.run()
    assert not {"Conv", "ConvTranspose"} & set(model.operators)
    expected = functional.conv2d(tx, tw, tb, strides, pads, dilations, group)
    np.testing.assert_allclose(results["forward"], expected.numpy(), rtol=1e-11, atol=1e-12)
    expected = functional.conv_transpose2d(tx, tw, tb, strides, pads, 0, group, dilations)
    np.testing.assert_allclose(results["transposed"], expected.numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize("named", [False, True])
def test_average_pool(include: int, ceil_mode: int, named: bool, lowered: Callable[..., Any]) -> None:
    x = RANDOM.standard_normal((2, 3, 9, 8))
    how = {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 1] * 2}

    def program(arrays: dict[str, Array]) -> dict[str, Array]:
        return {"y": op.AveragePool(arrays["x"], ceil_mode=ceil_mode, count_include_pad=include, **how)}

    expected = functional.avg_pool2d(torch.tensor(x), [3, 2], [2, 3], [1, 1], bool(ceil_mode), bool(include))
    result = lowered(program, {"x": x}, {"x": ("batch", 3, "height", "width")} if named else None).run()["y"]
    np.testing.assert_allclose(result, expected.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("named", [False, True])
def test_automatic_padding_is_that_of_float32(auto_pad: str, named: bool, lowered: Callable[..., Any]) -> None:
    def program(arrays: dict[str, Array]) -> dict[str, Array]:
        how = {"strides": [2, 2], "auto_pad": auto_pad}
        return {
            "conv": op.Conv(arrays["x"], arrays["w"], **how),
            "pool": op.AveragePool(arrays["x"], kernel_shape=[3, 2], **how),
        }

    arrays = {"x": RANDOM.standard_normal((2, 3, 8, 7)), "w": RANDOM.standard_normal((4, 3, 3, 2))}
    shapes = {"x": ("batch", 3, "height", "width")} if named else None
    double = lowered(program, arrays, shapes).run()
    single = lowered(program, {k: v.astype(np.float32) for k, v in arrays.items()}, shapes).run()
    for name in single:
        np.testing.assert_allclose(double[name], single[name], rtol=1e-4, atol=1e-5)


def test_celu() -> None:
    """ONNX knows it in float32 only, so that no graph can be recorded; a model is made float64 all the same."""
    text = '<ir_version: 9, opset_import: ["" : 20]> f (float[n] x) => (float[n] y) { y = Celu<alpha = 0.5>(x) }'
    model, values = load(onnx.parser.parse_model(text), [X], {})
    expected = np.maximum(X, 0) + np.minimum(0, 0.5 * np.expm1(X / 0.5))
    np.testing.assert_allclose(Program(model).run(values)["y"], expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("length", [7, 12, 16])
def test_inverse_transforms(lowered: Callable[..., Any], length: int, parts: int) -> None:
    """ONNX Runtime's own are good to 1e-8 where the length is not a power of two."""
    x = RANDOM.standard_normal((3, length, parts))
    found = lowered(lambda arrays: {"y": op.DFT(arrays["x"], None, np.int64(1), inverse=1)}, {"x": x}).run()["y"]
    expected = np.fft.ifft(x[..., 0] + 1j * (x[..., 1] if parts == 2 else 0), axis=1)
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], expected, rtol=0, atol=1e-13)


def test_every_lowering_for_float64_has_a_test() -> None:
    tested = {row[0] for row in UNARY} | {row[0] for row in MULTIPLE} | {row[0] for row in ON_INTERVALS}
    tested |= {"AveragePool", "Celu", "Conv", "ConvTranspose", "LayerNormalization", "MatMul"}
    # The first two by what they are for, in tests/exporters/test_translations.py.
    tested |= {"BatchNormalization", "Gemm", "Relu", "Sigmoid", "Tanh"}
    files = {float64.__name__, windows.__name__}
    assert tested == {
        operator for operator, entries in LOWERINGS.items() if any(entry.apply.__module__ in files for entry in entries)
    }
