from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch

from edgeopt.autodiff import backward
from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import indexing
from edgeopt.tracing import Array, Tracer, new_graph, new_model, op

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


HOT = np.asarray([[0, 3, -1], [2, 2, 1]], np.int64)


def one_hot(values: torch.Tensor, axis: int) -> torch.Tensor:
    chosen = torch.nn.functional.one_hot(torch.tensor(HOT % 4), 4).movedim(-1, axis)
    return torch.where(chosen == 1, values[1], values[0])


def top_k(x: Array, count: int, **how: int) -> Array:
    return x.tracer.emit("TopK", x, [count], outputs=2, **how)[0]


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
    *(
        (
            "OneHot",
            lambda values, a=axis: one_hot(values, a),
            [(2,)],
            lambda values, a=axis: op.OneHot(HOT, np.int64(4), values, axis=a),
        )
        for axis in (-1, 0, 1)
    ),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == indexing.__name__}
    assert rules == {row[0] for row in ROWS}


@pytest.mark.parametrize("axis", [0, 1])
def test_indices_may_be_int32(axis: int, check_row: Callable[..., None]) -> None:
    def taken(x: Array) -> Array:
        return op.Gather(x, np.asarray([[1, 0], [1, 1]], np.int32), axis=axis)

    check_row(("Gather", None, X, taken), order=1)
    picked = np.asarray(ELEMENTS % 2, np.int32)
    check_row(("GatherElements", None, X, lambda x: op.GatherElements(x, picked, axis=axis)), order=1)


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


BATCHED: list[tuple[int, Any]] = [
    (1, [[1], [0], [1], [-1]]),
    (1, [[[1], [1]], [[0], [1]], [[1], [0]], [[0], [-1]]]),
    (1, [[1, 2], [0, 0], [1, -1], [0, 1]]),
    (2, [[[1], [0]], [[2], [2]], [[0], [1]], [[-1], [0]]]),
]


@pytest.mark.parametrize(("batch_dims", "indices"), BATCHED, ids=str)
def test_gather_nd_with_batch_dimensions(batch_dims: int, indices: Any, check_row: Callable[..., None]) -> None:
    """Also in a graph whose batch dimension has a name."""
    points = np.asarray(indices, np.int64)

    def reference(x: torch.Tensor) -> torch.Tensor:
        own = np.meshgrid(*(np.arange(size) for size in points.shape[:-1]), indexing="ij")[:batch_dims]
        return x[(*map(torch.tensor, own), *(torch.tensor(points[..., i]) for i in range(points.shape[-1])))]

    check_row(("GatherND", reference, X, lambda x: op.GatherND(x, points, batch_dims=batch_dims)))


def test_gather_nd_with_a_named_batch_dimension() -> None:
    tracer = Tracer(new_graph("batched"))
    x, indices = tracer.input("x", np.float32, ("batch", "row", 3)), tracer.input("i", np.int64, ("batch", "row", 2, 1))
    y = op.GatherND(x, indices, batch_dims=2)
    (gradient,) = backward(tracer, {y.value: y}, [x.value])
    assert gradient is not None
    tracer.output(gradient, "gradient")
    model = ir.serde.serialize_model(new_model(tracer.graph)).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    values = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    chosen = np.asarray([[[0, 0], [1, 2]], [[2, 1], [-1, 0]]], np.int64)[..., None]
    (result,) = session.run(None, {"x": values, "i": chosen})
    expected = np.zeros_like(values)
    for batch, row, place in np.ndindex(2, 2, 2):
        column = chosen[batch, row, place, 0]
        expected[batch, row, column] += values[batch, row, column]
    np.testing.assert_array_equal(result, expected)
