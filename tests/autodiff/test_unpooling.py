from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.autodiff import backward
from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import unpooling
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.tracing import Array, Tracer, new_graph, op

# Positions in two samples of two channels of 4x6 elements, or 9 elements, one for each window of 2x2, or of 3.
PLANE = np.arange(2 * 2 * 4 * 6).reshape(2, 2, 2, 2, 3, 2).transpose(0, 1, 2, 4, 3, 5).reshape(2, 2, 2, 3, 4)
PLANE = np.take_along_axis(PLANE, np.random.default_rng(0).integers(0, 4, (2, 2, 2, 3, 1)), 4)[..., 0]
# The same, counted in planes of 5x7.
WIDE = (PLANE // 24 * 5 + PLANE % 24 // 6) * 7 + PLANE % 6
LINE = np.arange(2 * 2 * 9).reshape(2, 2, 3, 3)[..., 1]


def unpooled(positions: Any, size: Sequence[int], output_shape: list[int] | None = None, **how: Any) -> tuple[Any, ...]:
    """A row for MaxUnpool. torch counts within each channel."""
    within = torch.tensor(positions % int(np.prod(size)))
    function: Callable[..., torch.Tensor] = functional.max_unpool1d if positions.ndim == 3 else functional.max_unpool2d

    def reference(x: torch.Tensor) -> torch.Tensor:
        return function(x, within, how["kernel_shape"], how["strides"], 0, list(size))

    def apply(x: Array) -> Array:
        return op.MaxUnpool(x, positions, output_shape, **how).with_shape((2, 2, *size))

    return ("MaxUnpool", reference, [positions.shape], apply)


def folded(image: Sequence[int], block: Sequence[int], channels: int, length: int, **how: Any) -> tuple[Any, ...]:
    """A row for Col2Im."""
    given = {"strides": [1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1], **how}

    def reference(x: torch.Tensor) -> torch.Tensor:
        padding, strides, dilations = given["pads"][:2], given["strides"], given["dilations"]
        return functional.fold(x, tuple(image), tuple(block), dilations, padding, strides)

    width = channels * int(np.prod(block))
    return ("Col2Im", reference, [(2, width, length)], lambda x: op.Col2Im(x, list(image), list(block), **how))


ROWS: list[tuple[Any, ...]] = [
    unpooled(PLANE, (4, 6), kernel_shape=[2, 2], strides=[2, 2]),
    unpooled(LINE, (9,), kernel_shape=[3], strides=[3]),
    unpooled(WIDE, (5, 7), output_shape=[2, 2, 5, 7], kernel_shape=[2, 2], strides=[2, 2]),
    folded((4, 5), (2, 3), 2, 9),
    folded((6, 5), (2, 2), 3, 6, strides=[2, 2]),
    folded((5, 5), (3, 3), 1, 9, strides=[2, 2], pads=[1, 1, 1, 1]),
    folded((6, 6), (2, 3), 2, 8, dilations=[2, 2]),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == unpooling.__name__}
    assert rules == {row[0] for row in ROWS}


def test_columns_of_a_named_batch(check_row_with_names: Callable[..., None]) -> None:
    check_row_with_names(folded((6, 5), (2, 2), 3, 6, strides=[2, 2]), [("batch", 12, 6)])


def test_columns_of_a_line_and_of_a_volume(check_row: Callable[..., None]) -> None:
    """torch folds planes alone."""
    check_row(("Col2Im", None, [(2, 6, 4)], lambda x: op.Col2Im(x, [9], [3], strides=[2])), order=1)
    volume = ("Col2Im", None, [(1, 8, 12)], lambda x: op.Col2Im(x, [3, 4, 3], [2, 2, 2]))
    check_row(volume, order=1)


def test_elements_put_in_one_place_both_take_its_cotangent(make_step: Callable[..., Any]) -> None:
    """As in torch."""
    positions = np.asarray([[[0, 0]]])
    step = make_step(lambda x: op.MaxUnpool(x, positions, kernel_shape=[2], strides=[2]), [(1, 1, 2)])
    _, gradient = step.run([np.ones((1, 1, 2), np.float32)], np.asarray([[[3, 0, 0, 0]]], np.float32))
    np.testing.assert_array_equal(gradient, [[[3, 3]]])


def test_a_block_not_known_before_the_run_is_refused() -> None:
    tracer = Tracer(new_graph("refused"))
    x, block = tracer.input("x", np.float32, (2, 12, 6)), tracer.input("block", np.int64, (2,))
    y: Array = op.Col2Im(x, [6, 5], block)
    with pytest.raises(UnsupportedOperatorError, match="block shape is not known"):
        backward(tracer, {y.value: y}, [x.value])
