"""What a constant of a file is taken for, by what reads it, by its values and by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.numpy_helper
import onnx.parser
import pytest

import edgeopt
from edgeopt.errors import ExportWarning
from edgeopt_exporters.onnx_file import Constant, constants_of, from_onnx
from edgeopt_exporters.onnx_file.role_table import ARITHMETIC, PASSING, row_of

RANDOM = np.random.default_rng(0)


def w(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def written(
    body: str, outputs: str = "float[n, 2] y", inputs: str = "float[n, 4] x", **constants: Any
) -> onnx.ModelProto:
    head = '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>'
    model = onnx.parser.parse_model(f"{head} m ({inputs}) => ({outputs}) {{ {body} }}")
    for name, array in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name.replace("__", ".")))
    return model


def roles(model: onnx.ModelProto) -> dict[str, tuple[str, bool]]:
    return {one.name: (one.role, one.certain) for one in constants_of(model)}


IMAGE = {"inputs": "float[n, 3, 4, 4] x", "outputs": "float[n, 3, 4, 4] y"}
PARAMETER, GUESS = ("parameter", True), ("parameter", False)
FROZEN, MAYBE_FROZEN = ("frozen parameter", True), ("frozen parameter", False)
STATISTIC, SETTING = ("statistic", True), ("setting", True)
NORMAL = "{} y = BatchNormalization(x, g, b, mean, var)"
STATISTICS = {"g": w(3), "b": w(3), "mean": w(3), "var": np.abs(w(3))}

# Of each kind: the nodes, their constants, and what these are.
KINDS: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, tuple[str, bool]]]] = {
    "statistics": (
        lambda: written("y = BatchNormalization(x, g, b, mean, var)", **IMAGE, **STATISTICS),
        {"g": PARAMETER, "b": PARAMETER, "mean": STATISTIC, "var": STATISTIC},
    ),
    "statistics behind a cast, a reshape, and a product with a constant": (
        lambda: written(
            "m = Cast<to = 1>(mean) v = Reshape(var, flat) t = Mul(v, two) y = BatchNormalization(x, g, b, m, t)",
            **IMAGE,
            **{**STATISTICS, "mean": w(3).astype(np.float16), "var": np.abs(w(1, 3, 1, 1))},
            flat=np.asarray([3]),
            two=np.float32(2),
        ),
        {"mean": STATISTIC, "var": STATISTIC, "two": SETTING},
    ),
    "a gain of a weight norm": (
        lambda: written(
            "r = ReduceL2<keepdims = 1>(v, one) d = Div(g, r) k = Mul(v, d) y = MatMul(x, k)",
            v=w(4, 2), g=w(1, 2), one=np.asarray([0]),
        ),
        {"v": PARAMETER, "g": PARAMETER},
    ),
    "a weight of half precision": (
        lambda: written("k = Cast<to = 1>(half) y = MatMul(x, k)", half=w(4, 2).astype(np.float16)),
        {"half": PARAMETER},
    ),
    "a weight as it is quantized": (
        lambda: written(
            "q = QuantizeLinear(k, s, z) d = DequantizeLinear(q, s, z) y = MatMul(x, d)",
            k=w(4, 2), s=np.float32(0.1), z=np.int8(0),
        ),
        {"k": PARAMETER, "s": SETTING},
    ),
    "a bias behind a reshape": (
        lambda: written(
            "h = MatMul(x, k) r = Reshape(h, s) y = Add(r, c)", "float[n, 1, 2] y",
            k=w(4, 2), s=np.asarray([-1, 1, 2]), c=w(2)
        ),
        {"k": PARAMETER, "c": PARAMETER},
    ),
    "zeros that an exporter made": (
        lambda: written("y = Gemm(x, k, val_7)", k=w(4, 2), val_7=np.zeros(2, np.float32)),
        {"k": PARAMETER, "val_7": MAYBE_FROZEN},
    ),
    "a bias that an exporter wrote as a number": (
        lambda: written(
            "b = Expand(zero, s) y = Conv(x, k, b)", **IMAGE, k=w(3, 3, 1, 1), zero=np.float32(0), s=np.asarray([3])
        ),
        {"k": PARAMETER, "zero": SETTING},
    ),
    "zeros that are a bias": (
        lambda: written("y = Gemm(x, k, bias)", k=w(4, 2), bias=np.zeros(2, np.float32)),
        {"bias": PARAMETER},
    ),
    "mean and deviation of images": (
        lambda: written(
            "c = Sub(x, m) s = Div(c, d) y = Conv(s, k)", **IMAGE, m=w(3, 1, 1), d=w(3, 1, 1), k=w(3, 3, 1, 1)
        ),
        {"m": FROZEN, "d": FROZEN, "k": PARAMETER},
    ),
    "a scale and a shift of images": (
        lambda: written(
            "c = Mul(x, m) s = Add(c, d) y = Conv(s, k)", **IMAGE, m=w(3, 1, 1), d=w(3, 1, 1), k=w(3, 3, 1, 1)
        ),
        {"m": FROZEN, "d": FROZEN},
    ),
    "a mask": (
        lambda: written(
            "h = MatMul(x, k) s = Add(h, mask) y = Softmax(s)", k=w(4, 2), mask=np.asarray([[0, -1e4]], np.float32)
        ),
        {"mask": SETTING},
    ),
    "ones from which a mask is subtracted": (
        lambda: written("h = MatMul(x, k) y = Sub(ones, h)", k=w(4, 2), ones=np.ones((1, 2), np.float32)),
        {"ones": SETTING},
    ),
    "a grid": (
        lambda: written(
            "h = MatMul(x, k) y = Add(h, grid)", "float[n, 9] y",
            k=w(4, 9), grid=np.arange(9, dtype=np.float32)[None] / 3
        ),
        {"grid": FROZEN},
    ),
    "angles": (
        lambda: written(
            "h = MatMul(x, k) s = Sigmoid(h) y = Mul(s, table)",
            "float[9, 2] y", "float[9, 4] x",
            k=w(4, 2), table=np.cos(np.outer(np.arange(9), [1.0, 0.3])).astype(np.float32),
        ),
        {"table": FROZEN},
    ),
    "a window": (
        lambda: written(
            "h = Sigmoid(x) t = Mul(h, hann) y = MatMul(t, k)", inputs="float[n, 32] x",
            hann=np.hanning(32).astype(np.float32), k=w(32, 2),
        ),
        {"hann": FROZEN, "k": PARAMETER},
    ),
    "an eye": (
        lambda: written("h = MatMul(x, eye) y = MatMul(h, k)", eye=np.eye(4, dtype=np.float32), k=w(4, 2)),
        {"eye": FROZEN, "k": PARAMETER},
    ),
    "a bank of filters": (
        lambda: written(
            "h = MatMul(x, bank) y = MatMul(h, k)", inputs="float[n, 40] x", k=w(6, 2),
            bank=np.maximum(0, 1 - np.abs(np.arange(40)[:, None] - 4 - 6 * np.arange(6)) / 4).astype(np.float32),
        ),
        {"bank": FROZEN},
    ),
    "scale and shift of a normalisation in parts": (
        lambda: written(
            "m = ReduceMean<keepdims = 1>(x, one) c = Sub(x, m) v = ReduceSumSquare<keepdims = 1>(c, one) "
            "e = Add(v, eps) s = Sqrt(e) n = Div(c, s) p = Mul(n, scale1) q = Add(p, other) y = MatMul(q, k)",
            one=np.asarray([1]), eps=np.float32(1e-5), scale1=w(4), other=w(4), k=w(4, 2),
        ),
        {"eps": SETTING, "scale1": PARAMETER, "other": PARAMETER},
    ),
    "a token in front": (
        lambda: written(
            "e = Expand(token, s) h = Concat<axis = 1>(e, x) y = MatMul(h, k)",
            "float[2, 3, 2] y", "float[2, 2, 4] x", token=w(1, 1, 4), s=np.asarray([2, 1, 4]), k=w(4, 2),
        ),
        {"token": PARAMETER},
    ),
    "a first state of zeros": (
        lambda: written(
            "a, y = GRU<hidden_size = 2>(x, k, r, , , state)", "float[1, 1, 2] y", "float[5, 1, 4] x",
            k=w(1, 6, 4), r=w(1, 6, 2), state=np.zeros((1, 1, 2), np.float32),
        ),
        {"k": PARAMETER, "r": PARAMETER, "state": SETTING},
    ),
    "a weight in a branch": (
        lambda: written(
            "k = If(t) <then_branch = one () => (float[4, 2] a) { a = Identity(first) }, "
            "else_branch = two () => (float[4, 2] b) { b = Identity(second) }> y = MatMul(x, k)",
            inputs="float[n, 4] x, bool t", first=w(4, 2), second=w(4, 2),
        ),
        {"first": PARAMETER, "second": PARAMETER},
    ),
    "statistics in parts, by their names": (
        lambda: written(
            "h = Conv(x, k) c = Sub(h, running_mean) e = Add(running_var, eps) s = Sqrt(e) y = Div(c, s)",
            **IMAGE, k=w(3, 3, 1, 1), running_mean=w(3, 1, 1), running_var=np.abs(w(3, 1, 1)), eps=np.float32(1e-5),
        ),
        {"running_mean": FROZEN, "running_var": FROZEN, "eps": SETTING},
    ),
    "fused layers of ONNX Runtime": (
        lambda: written(
            "f = com.microsoft.BiasGelu(x, c) s, u, v = com.microsoft.SkipLayerNormalization(f, x, gain, shift) "
            "y = MatMul(s, k)", inputs="float[1, n, 4] x", outputs="float[1, n, 2] y",
            c=w(4), gain=w(4), shift=w(4), k=w(4, 2),
        ),
        {"c": PARAMETER, "gain": PARAMETER, "shift": PARAMETER, "k": PARAMETER},
    ),
    "a number for each channel, of which nothing is known": (
        lambda: written("h = MatMul(x, k) s = Sigmoid(h) y = Mul(s, unknown)", k=w(4, 2), unknown=w(2)),
        {"unknown": GUESS},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_constant(kind: str) -> None:
    build, expected = KINDS[kind]
    found = roles(build())
    assert {name: found[name] for name in expected} == expected


def test_statistics_behind_a_cast_are_the_state_and_move() -> None:
    build, _ = KINDS["statistics behind a cast, a reshape, and a product with a constant"]
    model = build()
    forward = from_onnx(model, batch_norm="train")
    given = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert set(forward.buffers) == {"mean", "var"} == set(forward.train.updated_buffers)
    np.testing.assert_allclose(forward.buffers["mean"], given["mean"].astype(np.float32))
    np.testing.assert_allclose(forward.buffers["var"], 2 * given["var"].reshape(3))
    assert ("checked", "predict") in [(decision.kind, decision.subject) for decision in forward.decisions]


def test_every_input_of_every_operator_is_thought_of() -> None:
    """Each floating-point input is in the table, of arithmetic, passed on, or the data that an operator transforms."""
    data = {  # What is transformed, rather than what transforms it.
        "Attention": {0, 1, 2}, "CumProd": {0}, "Concat": {0}, "Compress": {0}, "Col2Im": {0}, "CenterCropPad": {0},
        "DFT": {0}, "LinearAttention": {0, 1, 2, 4, 5}, "Loop": {2}, "MaxUnpool": {0}, "NonMaxSuppression": {1},
        "OneHot": {0, 1}, "Scan": {0}, "ScatterElements": {0, 2}, "ScatterND": {0, 2}, "SequenceConstruct": {0},
        "SequenceInsert": {1}, "SequenceMap": {1}, "SwiGLU": {0, 1}, "TensorScatter": {1}, "TopK": {0}, "Trilu": {0},
        "CastLike": {1}, "SoftmaxCrossEntropyLoss": {0}, "NegativeLogLikelihoodLoss": {0}, "STFT": {0}, "Pad": {0},
        "MaxRoiPool": {0}, "Resize": {0},
    }  # fmt: skip
    forgotten = []
    for schema in onnx.defs.get_all_schemas():
        if schema.domain or schema.deprecated or schema.name in ARITHMETIC:
            continue
        types = {
            entry.type_param_str for entry in schema.type_constraints if "tensor(float)" in entry.allowed_type_strs
        }
        floats = [at for at, entry in enumerate(schema.inputs) if entry.type_str in types | {"tensor(float)"}]
        node = onnx.helper.make_node(schema.name, [f"i{at}" for at in range(len(schema.inputs))], ["o"])
        given = onnx_node(node)
        first = {0} if schema.name in PASSING or len(floats) == 1 or row_of(given, 1) else set()
        forgotten += [
            (schema.name, at)
            for at in floats
            if at not in first | data.get(schema.name, set()) and not row_of(given, at)
        ]
    assert forgotten == []


def onnx_node(proto: onnx.NodeProto) -> Any:
    import onnx_ir as ir

    return ir.serde.deserialize_node(proto)


def export(model: onnx.ModelProto) -> edgeopt.bundle.Bundle:
    return edgeopt.export(model, loss=edgeopt.losses.MSE(), optimizer=edgeopt.optimizers.SGD(lr=0.1), verbose=False)


def test_guesses_are_warned_of() -> None:
    build, _ = KINDS["a number for each channel, of which nothing is known"]
    with pytest.warns(ExportWarning, match="guessed: unknown is a parameter; operand of a Mul"):
        export(build())


def test_many_guesses_are_one_line() -> None:
    count = 12
    names = [f"unknown{number}" for number in range(count)]
    body = " ".join(f"s{at} = Sigmoid(h{at}) h{at + 1} = Mul(s{at}, {name})" for at, name in enumerate(names))
    constants: Any = {name: w(2) for name in names}
    model = written(f"h0 = MatMul(x, k) {body} y = Identity(h{count})", k=w(4, 2), **constants)
    guesses = [decision for decision in from_onnx(model).decisions if decision.kind == "role"]
    assert [decision.warning for decision in guesses] == [True]
    assert all(name in guesses[0].text for name in names)
    assert guesses[0].text.startswith("12 constants are parameters (")


def test_a_weight_that_is_two_things_is_one_parameter() -> None:
    """An embedding that is the output layer, through a Transpose, stays tied."""
    model = written(
        "e = Gather(table, ids) t = Transpose(table) y = MatMul(e, t)", "float[n, 5] y", "int64[n] ids", table=w(5, 3)
    )
    assert set(from_onnx(model).parameters) == {"table"}


def test_constants_have_their_reasons() -> None:
    build, _ = KINDS["statistics"]
    assert [(one.name, one.shape, one.reason) for one in constants_of(build()) if isinstance(one, Constant)] == [
        ("g", (3,), "scale of a BatchNormalization"),
        ("b", (3,), "shift of a BatchNormalization"),
        ("mean", (3,), "running mean of a BatchNormalization"),
        ("var", (3,), "running variance of a BatchNormalization"),
    ]
