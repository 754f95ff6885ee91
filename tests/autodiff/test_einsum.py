from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edgeopt.autodiff import backward
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.tracing import Tracer, new_graph, op

EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 2, 5)]),
    ("bij,bjk,bkl->bil", [(2, 3, 2), (2, 2, 4), (2, 4, 3)]),
    ("i,j->ij", [(3,), (4,)]),
    ("ij->", [(2, 3)]),
    ("ij->i", [(2, 3)]),
    ("ij->ji", [(2, 3)]),
    ("ij", [(2, 3)]),
    ("ij,kl->il", [(2, 3), (4, 5)]),
    ("...ij,jk->...ik", [(2, 3, 4, 5), (5, 2)]),
    ("...i,...i->...", [(2, 3, 4), (2, 3, 4)]),
    ("i...,i...", [(2, 3), (2, 3)]),
    ("b i , b j -> b i j", [(2, 3), (2, 4)]),
]

ROWS: list[tuple[Any, ...]] = [
    ("Einsum", lambda *x, e=equation: torch.einsum(e.replace(" ", ""), *x), shapes, {"equation": equation})
    for equation, shapes in EQUATIONS
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_named_dimensions(check_row_with_names: Callable[..., None]) -> None:
    equation = "bid,bjd->bij"
    row = ("Einsum", lambda *x: torch.einsum(equation, *x), [(2, 3, 4), (2, 5, 4)], {"equation": equation})
    check_row_with_names(row, [("batch", "queries", 4), ("batch", "keys", 4)])


@pytest.mark.parametrize(
    ("equation", "shapes", "reason"),
    [("ii->i", [(3, 3)], "a letter twice"), ("ij,ij->ij", [(2, 3), (1, 3)], "is broadcast")],
)
def test_what_is_refused(equation: str, shapes: list[tuple[int, ...]], reason: str) -> None:
    tracer = Tracer(new_graph("refused"))
    inputs = [tracer.input(f"x{i}", np.float32, shape) for i, shape in enumerate(shapes)]
    y = op.Einsum(*inputs, equation=equation)
    with pytest.raises(UnsupportedOperatorError, match=reason):
        backward(tracer, {y.value: y}, [x.value for x in inputs])
