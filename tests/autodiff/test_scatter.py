from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import scatter
from edgeopt.testing import check_gradients
from edgeopt.tracing import Array, op

# Columns of a (3, 4) tensor; several updates meet in the first row, and -1 counts from the end.
COLUMNS = np.asarray([[0, 2, 2, 2], [1, -1, 0, 0]], np.int64)
DISTINCT = np.asarray([[0, 2], [1, -1]], np.int64)
POINTS = np.asarray([[0, 1], [2, 0], [0, 1], [-1, 0], [2, 0]], np.int64)
PLACES = np.asarray([[0, 1], [2, 0]], np.int64)
ROWS_TWICE = np.asarray([[1], [1], [0]], np.int64)
REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def reduced(x: torch.Tensor, updates: torch.Tensor, reduction: str, axis: int = 1) -> torch.Tensor:
    indices = torch.tensor(COLUMNS % x.shape[axis])
    return torch.scatter_reduce(x, axis, indices, updates, REDUCTIONS[reduction])


def flat_positions(points: np.ndarray[Any, Any], shape: tuple[int, ...]) -> torch.Tensor:
    """Where the slices of ScatterND begin in the flattened leading dimensions."""
    depth = points.shape[-1]
    wrapped = points % np.asarray(shape[:depth])
    return torch.tensor(np.ravel_multi_index(tuple(np.moveaxis(wrapped, -1, 0)), shape[:depth]))


def reduced_at_points(x: torch.Tensor, updates: torch.Tensor, points: Any, reduction: str) -> torch.Tensor:
    depth = points.shape[-1]
    places = flat_positions(points, tuple(x.shape))
    rows = x.reshape(-1, *x.shape[depth:])
    spread = places.reshape(-1, *[1] * (x.ndim - depth)).expand(updates.shape)
    return torch.scatter_reduce(rows, 0, spread, updates, REDUCTIONS[reduction]).reshape(x.shape)


def placed(x: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
    return x.index_put((torch.tensor(PLACES[:, 0]), torch.tensor(PLACES[:, 1])), updates)


def at_points(points: Any, reduction: str) -> Callable[[Array, Array], Array]:
    return lambda x, u: op.ScatterND(x, points, u, reduction=reduction)


ROWS: list[tuple[Any, ...]] = [
    ("ScatterND", placed, [(3, 2, 3), (2, 3)], lambda x, u: op.ScatterND(x, PLACES, u)),
    *(
        (
            "ScatterND",
            lambda x, u, points=points, r=reduction: reduced_at_points(x, u, points, r),
            shapes,
            at_points(points, reduction),
        )
        for reduction in REDUCTIONS
        for points, shapes in ((POINTS, [(3, 2, 2), (5, 2)]), (ROWS_TWICE, [(2, 3), (3, 3)]), (POINTS, [(3, 2), (5,)]))
    ),
    (
        "ScatterElements",
        lambda x, u: torch.scatter(x, 1, torch.tensor(DISTINCT % 3), u),
        [(2, 3), (2, 2)],
        lambda x, u: op.ScatterElements(x, DISTINCT, u, axis=1),
    ),
    *(
        (
            "ScatterElements",
            lambda x, u, r=reduction, a=axis: reduced(x, u, r, a),
            [shape, (2, 4)],
            lambda x, u, r=reduction, a=axis: op.ScatterElements(x, COLUMNS, u, axis=a, reduction=r),
        )
        for reduction in REDUCTIONS
        for axis, shape in ((1, (3, 4)), (0, (3, 4)))
    ),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == scatter.__name__}
    assert rules == {row[0] for row in ROWS}


def test_named_dimensions(check_row_with_names: Callable[..., None]) -> None:
    for row in ROWS:
        if row[0] == "ScatterND" and len(row[2][0]) == 3 and row[1] is not placed:
            x, updates = row[2]
            check_row_with_names(row, [(*x[:2], "width"), (updates[0], "width")], [x[0]])


@pytest.mark.parametrize("reduction", ["mul", "max", "min"])
def test_ties_and_zeros_are_treated_as_in_torch(reduction: str, make_step: Callable[..., Any]) -> None:
    """Three equal candidates at one place, two at another; none, one and two zeros."""
    x = np.asarray([[2.0, 0.0, 3.0, 0.0], [5.0, 1.0, 1.0, 2.0], [1.0, 1.0, 1.0, 1.0]], np.float32)
    updates = np.asarray([[0.0, 3.0, 3.0, 0.0], [0.0, 2.0, 5.0, 0.0]], np.float32)
    cotangent = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4)
    step = make_step(lambda x, u: op.ScatterElements(x, COLUMNS, u, axis=1, reduction=reduction), [(3, 4), (2, 4)])
    x_there, updates_there = (torch.tensor(value, requires_grad=True) for value in (x, updates))
    expected = reduced(x_there, updates_there, reduction)
    expected.backward(torch.tensor(cotangent))
    output, to_x, to_updates = step.run([x, updates], cotangent)
    np.testing.assert_array_equal(output, expected.detach().numpy())
    assert x_there.grad is not None
    assert updates_there.grad is not None
    np.testing.assert_allclose(to_x, x_there.grad, rtol=1e-6)
    np.testing.assert_allclose(to_updates, updates_there.grad, rtol=1e-6)


def test_a_product_with_zeros_is_right_by_differences() -> None:
    """onnxruntime-training ignores the reduction and says nothing."""
    x = np.asarray([[0.0, 2.0, 3.0, 0.0], [5.0, 1.0, 1.0, 2.0]])
    updates = np.asarray([[2.0, 3.0, 0.0, 4.0], [0.0, 2.0, 0.0, 0.0]])
    check_gradients(lambda x, u: op.ScatterElements(x, COLUMNS, u, axis=1, reduction="mul"), [x, updates])
