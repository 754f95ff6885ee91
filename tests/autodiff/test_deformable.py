from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.autodiff import backward
from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import deformable
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.tracing import Tracer, new_graph, op


def tap_by_tap(x: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor | None, tap: int, where: tuple[int, int],
               strides: Sequence[int], sets: int) -> torch.Tensor:  # fmt: skip
    """What one tap reads, by torch's own sampling of images."""
    size = offset.shape[2:]
    moves = offset.reshape(x.shape[0] * sets, -1, 2, *size)[:, tap]
    places = torch.meshgrid(*(torch.arange(n) * s for n, s in zip(size, strides, strict=True)), indexing="ij")
    coordinates = [moves[:, i] + places[i] + where[i] for i in range(2)]
    # Counted from -1 to 1, the last axis first.
    scaled = [2 * c / (n - 1) - 1 for c, n in zip(coordinates, x.shape[2:], strict=True)]
    images = x.reshape(x.shape[0] * sets, -1, *x.shape[2:])
    read = functional.grid_sample(images, torch.stack(scaled[::-1], -1), align_corners=True)
    if mask is not None:
        read = read * mask.reshape(x.shape[0] * sets, -1, 1, *size)[:, tap]
    return read.reshape(*x.shape[:2], *size)


def deformed(
    x: tuple[int, ...],
    w: tuple[int, ...],
    out: tuple[int, int],
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilations: Sequence[int] = (1, 1),
    group: int = 1,
    sets: int = 1,
    bias: bool = False,
    masked: bool = False,
) -> tuple[Any, ...]:
    """A row for DeformConv. torch has no such operator; torchvision has."""
    taps = w[2] * w[3]
    shapes: list[tuple[int, ...]] = [x, w, (x[0], sets * taps * 2, *out)]
    if bias:
        shapes.append((w[0],))
    if masked:
        shapes.append((x[0], sets * taps, *out))

    def split(rest: Sequence[Any]) -> tuple[Any, Any]:
        return (rest[0] if bias else None), (rest[-1] if masked else None)

    def reference(x: torch.Tensor, w: torch.Tensor, offset: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        b, mask = split(rest)
        total = torch.zeros(x.shape[0], w.shape[0], *out, dtype=x.dtype)
        for tap, index in enumerate(itertools.product(range(w.shape[2]), range(w.shape[3]))):
            where = (index[0] * dilations[0] - padding[0], index[1] * dilations[1] - padding[1])
            read = tap_by_tap(x, offset, mask, tap, where, strides, sets)
            total = total + functional.conv2d(read, w[:, :, index[0], index[1], None, None], None, groups=group)
        return total if b is None else total + b[:, None, None]

    def apply(x: Any, w: Any, offset: Any, *rest: Any) -> Any:
        b, mask = split(rest)
        how = {"strides": strides, "pads": [*padding, *padding], "dilations": dilations}
        return op.DeformConv(x, w, offset, b, mask, group=group, offset_group=sets, **how)

    return ("DeformConv", reference, shapes, apply)


PLAIN = deformed((2, 3, 5, 4), (4, 3, 2, 3), (4, 2))
FULL = deformed((2, 4, 6, 5), (6, 2, 3, 2), (3, 4), (2, 1), (1, 0), (1, 1), group=2, sets=2, bias=True, masked=True)

ROWS: list[tuple[Any, ...]] = [
    PLAIN,
    deformed((2, 4, 6, 5), (4, 1, 2, 2), (4, 3), dilations=(2, 2), group=4),
    deformed((1, 2, 4, 4), (2, 2, 1, 1), (4, 4), masked=True),
    FULL,
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row, order=2 if row is PLAIN else 1)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == deformable.__name__}
    assert rules == {row[0] for row in ROWS}


@pytest.mark.parametrize("spatial", [(6, 5, 3, 4), ("height", "width", "rows", "columns")], ids=str)
def test_named_dimensions(spatial: tuple[Any, ...], check_row_with_names: Callable[..., None]) -> None:
    x, w, offset, b, mask = FULL[2]
    rows = [("batch", shape[1], *spatial[2:]) for shape in (offset, mask)]
    check_row_with_names(FULL, [("batch", x[1], *spatial[:2]), w, rows[0], b, rows[1]])


def test_without_offsets_it_is_a_convolution(make_step: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 6, 5), (4, 3, 3, 3)))
    offset, cotangent = np.zeros((2, 18, 6, 5), np.float32), rng.standard_normal((2, 4, 6, 5)).astype(np.float32)
    pads = [1, 1, 1, 1]
    moved = make_step(lambda x, w: op.DeformConv(x, w, offset, pads=pads), [x.shape, w.shape])
    straight = make_step(lambda x, w: op.Conv(x, w, pads=pads), [x.shape, w.shape])
    for result, expected in zip(moved.run([x, w], cotangent), straight.run([x, w], cotangent), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_a_weight_of_unknown_shape_is_refused() -> None:
    tracer = Tracer(new_graph("refused"))
    x, w = tracer.input("x", np.float32, (2, 3, 8, 8)), tracer.input("w", np.float32, (4, 3, "k", "k"))
    y = op.DeformConv(x, w, np.zeros((2, 18, 6, 6), np.float32))
    with pytest.raises(UnsupportedOperatorError, match="DeformConv"):
        backward(tracer, {y.value: y}, [w.value])
