from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import sequences
from edgeopt.tracing import op

LENGTHS = np.asarray([1, 3, 2], np.int64)


def time_first(x: torch.Tensor) -> torch.Tensor:
    columns = [torch.cat([x[:n, i].flip(0), x[n:, i]]) for i, n in enumerate(LENGTHS.tolist())]
    return torch.stack(columns, 1) ** 2


def batch_first(x: torch.Tensor) -> torch.Tensor:
    return time_first(x.transpose(0, 1)).transpose(0, 1)


def squared(**axes: int) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        y = op.ReverseSequence(x, LENGTHS, **axes)
        return y * y

    return function


ROWS: list[tuple[Any, ...]] = [
    ("ReverseSequence", time_first, [(4, 3, 2)], squared()),
    ("ReverseSequence", batch_first, [(3, 4)], squared(batch_axis=0, time_axis=1)),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == sequences.__name__}
    assert rules == {row[0] for row in ROWS}
