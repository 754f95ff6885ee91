from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edgeopt.lowering import lower
from edgeopt.tracing import Array, Tracer, new_graph, op

X = np.linspace(-1, 1, 12).reshape(3, 4)


def test_outputs_keep_their_names_and_order(lowered: Callable[..., Any]) -> None:
    def program(arrays: dict[str, Array]) -> dict[str, Array]:
        x = arrays["x"]
        return {"cosine": op.Cos(x), "unchanged": op.Dropout(x), "again": op.Dropout(x), "sine": op.Sin(x)}

    results = lowered(program, {"x": X}).run()
    assert list(results) == ["cosine", "unchanged", "again", "sine"]
    np.testing.assert_allclose(results["cosine"], np.cos(X))
    np.testing.assert_array_equal(results["unchanged"], X)
    np.testing.assert_array_equal(results["again"], X)


def test_what_a_lowering_emits_is_lowered_again(lowered: Callable[..., Any]) -> None:
    """Gelu becomes Erf, which becomes a matrix product; in the middle of a graph, whose order stays right."""
    model = lowered(lambda arrays: {"y": op.Exp(op.Gelu(op.Tanh(arrays["x"])))}, {"x": X})
    assert not {"Gelu", "Erf"} & set(model.operators)
    assert model.run()["y"].shape == X.shape


def test_lowerings_in_a_row_meet(lowered: Callable[..., Any]) -> None:
    """The second one reads what the first one has become, not the node that is gone."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 4)), rng.standard_normal((5, 4))
    model = lowered(lambda a: {"y": op.MatMul(op.Gelu(a["x"]), op.Transpose(a["w"], perm=[1, 0]))}, {"x": x, "w": w})
    expected = torch.nn.functional.gelu(torch.from_numpy(x)) @ torch.from_numpy(w).T
    np.testing.assert_allclose(model.run()["y"], expected.numpy(), rtol=1e-12)


def test_equal_expressions_are_computed_once(lowered: Callable[..., Any]) -> None:
    def program(arrays: dict[str, Array]) -> dict[str, Array]:
        first, second = op.Softsign(arrays["x"]), op.Abs(arrays["x"])
        return {"y": op.Add(first, second)}

    assert lowered(program, {"x": X}).operators.count("Abs") == 1


def test_float32_is_left_alone(lowered: Callable[..., Any]) -> None:
    model = lowered(lambda arrays: {"y": op.Gelu(arrays["x"])}, {"x": X.astype(np.float32)})
    assert model.operators == ["Gelu"]


def test_a_graph_needs_no_tracer() -> None:
    tracer = Tracer(new_graph("plain"))
    tracer.output(op.Cos(tracer.input("x", np.float64, ("n",))), "y")
    lower(tracer.graph)
    assert "Cos" not in {node.op_type for node in tracer.graph}
    assert tracer.graph.outputs[0].name == "y"


def test_what_reaches_no_output_is_gone(lowered: Callable[..., Any]) -> None:
    """ONNX Runtime before 1.19 gives a tensor that nobody reads the memory of one in use, from the second run on."""

    def program(arrays: dict[str, Array]) -> dict[str, Array]:
        op.Sin(op.Exp(arrays["x"]))
        return {"y": op.Abs(arrays["x"])}

    assert lowered(program, {"x": X}).operators == ["Abs"]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("operator", ["Conv", "MaxPool", "AveragePool"])
def test_strides_larger_than_the_window(auto_pad: str, operator: str, named: bool, lowered: Callable[..., Any]) -> None:
    """Nothing is padded, and each window sees the first element of its stride."""
    x = np.random.default_rng(0).standard_normal((1, 2, 7, 6)).astype(np.float32)
    identity = np.eye(2, dtype=np.float32).reshape(2, 2, 1, 1)

    def program(arrays: dict[str, Array]) -> dict[str, Array]:
        how: dict[str, Any] = {"strides": [3, 2], "auto_pad": auto_pad}
        if operator == "Conv":
            return {"y": op.Conv(arrays["x"], identity, **how)}
        return {"y": getattr(op, operator)(arrays["x"], kernel_shape=[1, 1], **how)}

    model = lowered(program, {"x": x}, {"x": ("batch", 2, "height", "width")} if named else None)
    assert not any("auto_pad" in node.attributes for node in model.graph)
    np.testing.assert_array_equal(model.run()["y"], x[..., ::3, ::2])


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        *((name, X) for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceLogSumExp", "ReduceProd")),
        ("ReduceSumSquare", X * X),
        ("ReduceL1", np.abs(X)),
        ("ReduceL2", np.abs(X)),
    ],
)
def test_reductions_over_nothing(operator: str, expected: Any, lowered: Callable[..., Any]) -> None:
    model = lowered(lambda arrays: {"y": getattr(op, operator)(arrays["x"], noop_with_empty_axes=1)}, {"x": X})
    assert operator not in model.operators
    np.testing.assert_allclose(model.run()["y"], expected)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"), [(8, 2, 3, 1), (7, 2, 3, 1), (9, 3, 4, 1), (8, 3, 2, 1), (4, 2, 5, 1)]
)
def test_pooling_rounds_as_torch_does(
    operator: str,
    include: bool,
    named: bool,
    size: int,
    kernel: int,
    stride: int,
    padding: int,
    lowered: Callable[..., Any],
) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, size)).astype(np.float32)
    how = {"kernel_shape": [kernel], "strides": [stride], "pads": [padding] * 2, "ceil_mode": 1}
    if operator == "AveragePool":
        how["count_include_pad"] = int(include)
    shapes = {"x": ("batch", 3, "length")} if named else None
    model = lowered(lambda arrays: {"y": getattr(op, operator)(arrays["x"], **how)}, {"x": x}, shapes)
    tensor = torch.tensor(x)
    if operator == "MaxPool":
        expected = torch.nn.functional.max_pool1d(tensor, kernel, stride, padding, 1, True)
    else:
        expected = torch.nn.functional.avg_pool1d(tensor, kernel, stride, padding, True, include)
    np.testing.assert_allclose(model.run()["y"], expected.numpy(), rtol=1e-6)
