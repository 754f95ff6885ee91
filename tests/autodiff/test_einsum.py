from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

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
    ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]),
    ("iji->ij", [(3, 2, 3)]),
    ("iii->i", [(3, 3, 3)]),
    ("bii,bij->bj", [(2, 3, 3), (2, 3, 4)]),
    ("...ii->...i", [(2, 3, 3)]),
    ("ij,ij->ij", [(2, 3), (1, 3)]),
    ("ij,ij->i", [(2, 1), (2, 3)]),
    ("ij,jk->ik", [(2, 1), (3, 4)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (1, 4, 2)]),
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


def test_the_diagonal_of_a_named_dimension(check_row_with_names: Callable[..., None]) -> None:
    row = ("Einsum", lambda x: torch.einsum("bii->bi", x), [(2, 3, 3)], {"equation": "bii->bi"})
    check_row_with_names(row, [("batch", "size", "size")])
