from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import linear_algebra
from edgeopt.tracing import op

# Shapes of the two operands; more than ONNX Runtime's own training tests have.
PRODUCTS: list[list[tuple[int, ...]]] = [
    [(2, 3), (3, 4)],
    [(2, 3, 4), (2, 4, 5)],
    [(2, 3, 4), (4, 5)],
    [(3, 4), (2, 4, 5)],
    [(2, 3, 4, 5), (2, 3, 5, 2)],
    [(2, 3, 4, 5), (5, 2)],
    [(2, 3, 4, 5), (3, 5, 2)],
    [(2, 1, 3, 2), (1, 3, 2, 3)],
    [(4,), (4,)],
    [(4,), (4, 3)],
    [(2, 4), (4,)],
    [(4,), (2, 4, 3)],
    [(2, 3, 4), (4,)],
]


def gemm(alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0) -> Callable[..., Any]:  # noqa: N803  # ONNX's names
    def reference(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None = None) -> torch.Tensor:
        product = alpha * (a.T if transA else a) @ (b.T if transB else b)
        return product if c is None else product + beta * c

    return reference


ROWS: list[tuple[Any, ...]] = [
    *(("MatMul", torch.matmul, shapes, {}) for shapes in PRODUCTS),
    ("Gemm", gemm(), [(2, 3), (3, 4)], {}),
    *(("Gemm", gemm(), [(2, 3), (3, 4), bias], {}) for bias in [(), (4,), (1, 4), (2, 4), (2, 1)]),
    *(
        (
            "Gemm",
            gemm(**how),
            [(3, 2) if how.get("transA") else (2, 3), (4, 3) if how.get("transB") else (3, 4), (4,)],
            how,
        )
        for how in (
            {"transA": 1},
            {"transB": 1},
            {"transA": 1, "transB": 1},
            {"alpha": 0.7, "beta": 5.0},
            {"alpha": 0.7, "beta": 5.0, "transA": 1, "transB": 1},
        )
    ),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == linear_algebra.__name__}
    assert rules == {row[0] for row in ROWS}


@pytest.mark.parametrize(
    "dims",
    [
        [("batch", 3), (3, 4)],
        [("batch", "sequence", 3), (3, 4)],
        [("batch", "sequence", "width"), ("width", 4)],
        [("batch", "heads", "sequence", 3), ("batch", "heads", 3, "sequence")],
        [("batch", "sequence", 3), ("batch", 3, "sequence")],
        [("batch", "sequence", 3), (1, 3, "sequence")],
        [("batch", 3), (3,)],
        [("batch", 2, 3), (3, 5)],
    ],
    ids=str,
)
def test_named_dimensions(dims: list[tuple[int | str, ...]], check_row_with_names: Callable[..., None]) -> None:
    sizes = {"batch": 2, "sequence": 5, "heads": 2, "width": 3}
    shapes = [tuple(sizes[dim] if isinstance(dim, str) else dim for dim in shape) for shape in dims]
    check_row_with_names(("MatMul", torch.matmul, shapes, {}), dims)


def test_transposes_become_flags_of_the_product(make_step: Callable[..., Any]) -> None:
    step = make_step(lambda x, w: op.Gemm(x, w, transB=1), [("batch", 3), (4, 3)])
    assert {node.op_type for node in step.model.graph.node} == {"Gemm"}
