from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import padding
from edgeopt.tracing import Array, op

X = [(2, 3, 4)]
TORCHS = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def padded(pads: Sequence[int], axes: list[int] | None = None, **how: Any) -> Callable[..., Array]:
    return lambda x, value=None: op.Pad(x, pads, value, axes, **how)


def copied(mode: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: functional.pad(x, (1, 2), mode=TORCHS[mode])


def through_numpy(pads: Sequence[tuple[int, int]], mode: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """numpy's padding of each element's position; what is padded by a negative number is cut off first."""

    def reference(x: torch.Tensor) -> torch.Tensor:
        positions = np.arange(x.numel()).reshape(x.shape)
        kept = tuple(slice(max(-b, 0), size - max(-e, 0)) for (b, e), size in zip(pads, x.shape, strict=True))
        grown = np.pad(positions[kept], [(max(b, 0), max(e, 0)) for b, e in pads], mode=mode)  # type: ignore[call-overload]  # a plain str
        return x.reshape(-1)[torch.tensor(grown)]

    return reference


ROWS: list[tuple[Any, ...]] = [
    ("Pad", lambda x: functional.pad(x, (1, 2, 0, 1)), X, padded([0, 0, 1, 0, 1, 2])),
    ("Pad", lambda x: functional.pad(x, (-1, 2), value=3.0), X, lambda x: op.Pad(x, [0, 0, -1, 0, 0, 2], 3.0)),
    ("Pad", lambda x: functional.pad(x, (0, 0, 1, 2)), X, padded([1, 2], [1])),
    ("Pad", lambda x: functional.pad(x, (0, 0, 2, -1)), X, padded([2, -1], [-2])),
    # torch's padding value is a number; as a tensor, it is what the ones around zeros are multiplied by.
    (
        "Pad",
        lambda x, v: functional.pad(x, (1, 2, 0, -1)) + v * functional.pad(0 * x, (1, 2, 0, -1), value=1.0).detach(),
        [(2, 3, 4), ()],
        padded([0, 0, 1, 0, -1, 2]),
    ),
    (
        "Pad",
        lambda x, v: functional.pad(x, (1, 0)) + v * functional.pad(0 * x, (1, 0), value=1.0).detach(),
        [(2, 3), (1,)],
        padded([1, 0], [1]),
    ),
    *(("Pad", copied(mode), X, padded([0, 0, 1, 0, 0, 2], mode=mode)) for mode in TORCHS),
    *(
        ("Pad", through_numpy([(1, 0), (2, 1), (1, 2)], mode), X, padded([1, 2, 1, 0, 1, 2], mode=mode))
        for mode in TORCHS
    ),
    *(
        ("Pad", through_numpy([(0, 0), (-1, 1), (0, 2)], mode), X, padded([0, -1, 2, 1], [-1, 1], mode=mode))
        for mode in TORCHS
    ),
    (
        "CenterCropPad",
        lambda x: functional.pad(x[:, 1:3], (1, 2)),
        [(2, 5, 4)],
        lambda x: op.CenterCropPad(x, [2, 7], axes=[1, 2]),
    ),
    ("CenterCropPad", lambda x: x[:1, :, 1:4], [(2, 3, 6)], lambda x: op.CenterCropPad(x, [1, 3, 3])),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == padding.__name__}
    assert rules == {row[0] for row in ROWS}


@pytest.mark.parametrize("mode", ["constant", *TORCHS])
def test_named_dimensions(mode: str, check_row_with_names: Callable[..., None]) -> None:
    reference = copied(mode) if mode in TORCHS else lambda x: functional.pad(x, (1, 2))
    row = ("Pad", reference, X, padded([0, 0, 1, 0, 0, 2], mode=mode))
    check_row_with_names(row, [("batch", 3, "width")])


@pytest.mark.parametrize("mode", ["constant", *TORCHS])
def test_padding_not_known_before_the_run(mode: str, check_row: Callable[..., None]) -> None:
    """The second operand's shape decides how much is padded."""

    def pad(x: Array, like: Array) -> Array:
        grown = op.Shape(like, start=2) - op.Shape(x, start=2)
        return op.Pad(x, op.Concat([0], grown, axis=0), None, [2], mode=mode) * like

    def reference(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return functional.pad(x, (0, 2), mode=TORCHS.get(mode, mode)) * like

    check_row(("Pad", reference, [(2, 3, 4), (2, 3, 6)], pad), order=1)
