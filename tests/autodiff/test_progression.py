from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from edgeopt.tracing import op


def progression(start: Any, delta: Any) -> Any:
    return start + torch.arange(4) * delta


ROWS: list[tuple[Any, ...]] = [
    ("Range", progression, [(), ()], lambda start, delta: op.Range(start, start + 3.5 * delta, delta)),
    ("Range", lambda start: start + torch.arange(3), [()], lambda start: op.Range(start, start + 2.5, 1.0)),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)
