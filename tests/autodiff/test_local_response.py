from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import local_response

HOW = {"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 1.5}


def reference(x: torch.Tensor) -> torch.Tensor:
    return functional.local_response_norm(x, 3, 0.5, 0.6, 1.5)


ROWS: list[tuple[Any, ...]] = [
    ("LRN", reference, [(2, 5, 3, 4)], HOW),
    ("LRN", reference, [(2, 5, 4)], HOW),
    ("LRN", reference, [(1, 4, 2, 3, 2)], HOW),
    ("LRN", lambda x: functional.local_response_norm(x, 7), [(2, 3, 2, 2)], {"size": 7}),
    # torch puts the larger part of an even window in front, ONNX behind.
    ("LRN", lambda x: functional.local_response_norm(x.flip(1), 4).flip(1), [(2, 5, 2, 2)], {"size": 4}),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == local_response.__name__}
    assert rules == {row[0] for row in ROWS}


def test_named_dimensions(check_row_with_names: Callable[..., None]) -> None:
    check_row_with_names(ROWS[0], [("batch", 5, "height", "width")])


def test_named_channels(check_row_with_names: Callable[..., None]) -> None:
    check_row_with_names(ROWS[0], [("batch", "channels", "height", "width")])
