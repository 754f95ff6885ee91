from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edgeopt.autodiff import backward
from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import indexing
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.tracing import Array, Tracer, new_graph, op

X = [(4, 2, 3)]


def gathered(indices: Any, axis: int) -> tuple[Any, ...]:
    chosen = np.asarray(indices, np.int64)

    def reference(x: torch.Tensor) -> torch.Tensor:
        positive = torch.tensor(chosen % x.shape[axis])
        taken = torch.index_select(x, axis, positive.reshape(-1))
        at = axis % x.ndim
        return taken.reshape(*x.shape[:at], *positive.shape, *x.shape[at + 1 :])

    return ("Gather", reference, X, lambda x: op.Gather(x, chosen, axis=axis))


ELEMENTS = np.asarray([[[0, 1, 2], [3, 3, 0]], [[1, 1, 1], [0, 2, 3]]], np.int64)
POINTS = np.asarray([[0, 1], [3, 0], [0, 1]], np.int64)
PLACES = np.asarray([[0, 1], [3, 0]], np.int64)


def scattered(x: torch.Tensor, updates: torch.Tensor, accumulate: bool) -> torch.Tensor:
    return x.index_put((torch.tensor(PLACES[:, 0]), torch.tensor(PLACES[:, 1])), updates, accumulate)


def top_k(x: Array, count: int, **how: int) -> Array:
    return x.tracer.emit("TopK", x, [count], outputs=2, **how)[0]


COLUMNS = np.asarray([[0, 2], [1, 0]], np.int64)

ROWS: list[tuple[Any, ...]] = [
    gathered([0, 2], 0),
    gathered([1, 1, 3, 1], 0),
    gathered([-1, 0], 0),
    gathered([[0, 1], [1, 0]], 1),
    gathered([2, 0, 0], -1),
    gathered(1, 0),
    gathered(-1, 2),
    gathered([1], 1),
    gathered([[1]], 1),
    (
        "GatherElements",
        lambda x: torch.gather(x, 0, torch.tensor(ELEMENTS)),
        X,
        lambda x: op.GatherElements(x, ELEMENTS),
    ),
    (
        "GatherElements",
        lambda x: torch.gather(x, 2, torch.tensor(ELEMENTS % 3)),
        X,
        lambda x: op.GatherElements(x, ELEMENTS % 3, axis=-1),
    ),
    (
        "GatherND",
        lambda x: x[torch.tensor(POINTS[:, 0]), torch.tensor(POINTS[:, 1])],
        X,
        lambda x: op.GatherND(x, POINTS),
    ),
    ("TopK", lambda x: torch.topk(x, 2, 1).values, [(3, 5)], lambda x: top_k(x, 2, axis=1)),
    ("TopK", lambda x: torch.topk(x, 3, 0, largest=False).values, [(4, 2)], lambda x: top_k(x, 3, axis=0, largest=0)),
    ("ScatterND", lambda x, u: scattered(x, u, False), [*X, (2, 3)], lambda x, u: op.ScatterND(x, PLACES, u)),
    (
        "ScatterND",
        lambda x, u: scattered(x, u, True),
        [*X, (2, 3)],
        lambda x, u: op.ScatterND(x, PLACES, u, reduction="add"),
    ),
    (
        "ScatterElements",
        lambda x, u: torch.scatter(x, 1, torch.tensor(COLUMNS), u),
        [(2, 3), (2, 2)],
        lambda x, u: op.ScatterElements(x, COLUMNS, u, axis=1),
    ),
    (
        "ScatterElements",
        lambda x, u: torch.scatter_add(x, 1, torch.tensor(COLUMNS), u),
        [(2, 3), (2, 2)],
        lambda x, u: op.ScatterElements(x, COLUMNS, u, axis=1, reduction="add"),
    ),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == indexing.__name__}
    assert rules == {row[0] for row in ROWS}


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_with_named_dimensions(axis: int, check_row_with_names: Callable[..., None]) -> None:
    check_row_with_names(gathered([1, 0, 1], axis), [("batch", "sequence", "width")])


@pytest.mark.parametrize(("axis", "index"), [(0, 1), (1, -1)])
def test_gather_of_one_row_with_named_dimensions(
    axis: int, index: int, check_row_with_names: Callable[..., None]
) -> None:
    check_row_with_names(gathered(index, axis), [("batch", "sequence", 3)])


def test_an_embedding_adds_up_the_rows_it_took_several_times(make_step: Callable[..., Any]) -> None:
    tokens = np.asarray([[1, 1, 0], [2, 1, 4]], np.int64)
    step = make_step(lambda w: op.Gather(w, w.tracer.constant(tokens)), [(5, 2)])
    _, gradient = step.run([np.zeros((5, 2), np.float32)], np.ones((2, 3, 2), np.float32))
    np.testing.assert_array_equal(gradient[:, 0], [1, 3, 1, 0, 1])


@pytest.mark.parametrize(
    ("operator", "how", "reason"),
    [
        ("GatherND", {"batch_dims": 1}, "batch dimensions"),
        ("ScatterND", {"reduction": "mul"}, "reduction"),
        ("ScatterElements", {"reduction": "max"}, "reduction"),
    ],
)
def test_what_has_no_gradient_is_refused(operator: str, how: dict[str, Any], reason: str) -> None:
    """onnxruntime-training ignores `reduction` in the gradient and says nothing."""
    tracer = Tracer(new_graph("refused"))
    x = tracer.input("x", np.float32, (4, 4))
    indices = np.zeros((4, 1) if operator != "ScatterElements" else (4, 4), np.int64)
    y = getattr(op, operator)(x, indices, *([] if operator == "GatherND" else [x]), **how)
    with pytest.raises(UnsupportedOperatorError, match=reason):
        backward(tracer, {y.value: y}, [x.value])
