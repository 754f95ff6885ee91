from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import reduction
from edgeopt.testing import check_gradients
from edgeopt.tracing import Array, op

X = [(4, 3, 2)]
# The axes of ONNX Runtime's own training tests; None is all of them.
AXES: list[list[int] | None] = [None, [0, 1, 2], [0, 2], [0, 1], [1], [2], [-2], [-2, -1]]


def over(operator: str, axes: list[int] | None, keepdims: int) -> Callable[[Any], Any]:
    return lambda x: getattr(op, operator)(x, None if axes is None else np.asarray(axes, np.int64), keepdims=keepdims)


def expected(function: Callable[..., Any], axes: list[int] | None, keepdims: int) -> Callable[[Any], Any]:
    return lambda x: function(x, tuple(axes if axes is not None else range(x.ndim)), bool(keepdims))


REDUCTIONS: list[tuple[str, Callable[..., Any]]] = [
    ("ReduceSum", lambda x, d, k: x.sum(d, k)),
    ("ReduceMean", lambda x, d, k: x.mean(d, k)),
    ("ReduceSumSquare", lambda x, d, k: (x * x).sum(d, k)),
    ("ReduceL2", lambda x, d, k: torch.linalg.vector_norm(x, 2, d, k)),
    ("ReduceLogSumExp", lambda x, d, k: torch.logsumexp(x, d, k)),
    ("ReduceL1", lambda x, d, k: torch.linalg.vector_norm(x, 1, d, k)),
    ("ReduceMax", lambda x, d, k: torch.amax(x, d, k)),
    ("ReduceMin", lambda x, d, k: torch.amin(x, d, k)),
]

ROWS: list[tuple[Any, ...]] = [
    *(
        (operator, expected(function, axes, position % 2), X, over(operator, axes, position % 2))
        for operator, function in REDUCTIONS
        for position, axes in enumerate(AXES)
    ),
    *(
        (
            "ReduceLogSum",
            lambda x, a=axes: torch.log((x * x + 0.1).sum(a, True)),
            X,
            lambda x, a=axes: op.ReduceLogSum(x * x + 0.1, a),
        )
        for axes in ([1], [0, 2])
    ),
    *(("ReduceProd", lambda x, a=axis: torch.prod(x, a, True), X, over("ReduceProd", [axis], 1)) for axis in (0, 1, 2)),
    ("ReduceProd", torch.prod, [(2, 3)], over("ReduceProd", None, 0)),
    ("CumSum", lambda x: torch.cumsum(x, 1), X, lambda x: op.CumSum(x, np.int64(1))),
    ("CumSum", lambda x: x.flip(-1).cumsum(-1).flip(-1), X, lambda x: op.CumSum(x, np.int64(-1), reverse=1)),
    ("CumSum", lambda x: x.cumsum(0) - x, X, lambda x: op.CumSum(x, np.int64(0), exclusive=1)),
    (
        "CumSum",
        lambda x: x.flip(0).cumsum(0).flip(0) - x,
        X,
        lambda x: op.CumSum(x, np.int64(0), exclusive=1, reverse=1),
    ),
    ("ReduceSum", lambda x: 1.0 * x, X, {"noop_with_empty_axes": 1}),
    ("ReduceMean", lambda x: 1.0 * x, X, {"noop_with_empty_axes": 1}),
    ("ReduceSumSquare", lambda x: x * x, X, {"noop_with_empty_axes": 1}),
    ("ReduceMax", lambda x: 1.0 * x, X, {"noop_with_empty_axes": 1}),
    ("ReduceSum", lambda x: x.sum(), X, lambda x: op.ReduceSum(x, np.zeros(0, np.int64), keepdims=0)),
    # An empty list of axes is no list.
    *(
        (operator, expected(function, None, keepdims), X, over(operator, [], keepdims))
        for operator, function in REDUCTIONS
        for keepdims in (0, 1)
    ),
    (
        "ReduceMean",
        lambda x: 1.0 * x,
        X,
        lambda x: op.ReduceMean(x, np.zeros(0, np.int64), noop_with_empty_axes=1),
    ),
    *(("Softmax", lambda x, a=axis: torch.softmax(x, a), X, {"axis": axis}) for axis in (-1, 0, 1)),
    ("Softmax", lambda x: torch.softmax(x, -1), X, {}),
    *(("LogSoftmax", lambda x, a=axis: torch.log_softmax(x, a), X, {"axis": axis}) for axis in (-1, 0, 1)),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == reduction.__name__}
    assert rules == {row[0] for row in ROWS}


@pytest.mark.parametrize(
    ("operator", "function"), REDUCTIONS, ids=lambda value: value if isinstance(value, str) else ""
)
@pytest.mark.parametrize("axes", [[0], [1], [0, 2], None], ids=str)
def test_named_dimensions(
    operator: str, function: Callable[..., Any], axes: list[int] | None, check_row_with_names: Callable[..., None]
) -> None:
    row = (operator, expected(function, axes, 0), X, over(operator, axes, 0))
    check_row_with_names(row, [("batch", "sequence", 2)])


def test_the_norm_of_zeros_has_gradient_zero_as_in_torch(make_step: Callable[..., Any]) -> None:
    x = np.asarray([[3.0, 4.0], [0.0, 0.0]], np.float32)
    step = make_step(lambda x: op.ReduceL2(x, [1], keepdims=0), [(2, 2)])
    np.testing.assert_allclose(step.run([x], np.ones(2, np.float32))[1], [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6)


def test_a_product_with_zeros(make_step: Callable[..., Any]) -> None:
    x = np.asarray([[1.0, 2.0, 3.0], [0.0, 2.0, 3.0], [0.0, 0.0, 3.0]], np.float32)
    tensor = torch.tensor(x, requires_grad=True)
    torch.prod(tensor, 1).sum().backward()
    assert tensor.grad is not None
    step = make_step(over("ReduceProd", [1], 0), [(3, 3)])
    np.testing.assert_allclose(step.run([x], np.ones(3, np.float32))[1], tensor.grad.numpy())


@pytest.mark.parametrize("shapes", [{}, {"x": ("rows", "columns")}], ids=["known", "named"])
@pytest.mark.parametrize(("axes", "columns"), [([1], 3), ([1], 40), ([0, 1], 20)])
def test_second_derivatives_of_products_with_zeros(axes: list[int], columns: int, shapes: dict[str, Any]) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, (3, columns))
    x[0, 0] = x[1, :2] = 0.0

    def product(x: Array) -> Array:
        return op.ReduceProd(x, axes, keepdims=0)

    check_gradients(product, {"x": x}, shapes=shapes, order=2)


@pytest.mark.parametrize(("operator", "function"), [("ReduceMax", torch.amax), ("ReduceMin", torch.amin)])
def test_equal_extremes_share_the_gradient_as_in_torch(
    operator: str, function: Callable[..., Any], make_step: Callable[..., Any]
) -> None:
    x = np.asarray([[1.0, 2.0, 2.0, 1.0]], np.float32)
    tensor = torch.tensor(x, requires_grad=True)
    function(tensor, 1).sum().backward()
    assert tensor.grad is not None
    step = make_step(over(operator, [1], 0), [(1, 4)])
    np.testing.assert_array_equal(step.run([x], np.ones(1, np.float32))[1], tensor.grad.numpy())
