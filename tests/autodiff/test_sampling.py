from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import sampling
from edgeopt.tracing import op

TORCHS = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


def sampled(
    mode: str,
    padding: str,
    aligned: bool,
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((2, 3, 4, 5), (2, 3, 2, 2)),
) -> tuple[Any, ...]:
    def reference(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return functional.grid_sample(x, grid, TORCHS[mode], padding, aligned)

    how = {"mode": mode, "padding_mode": padding, "align_corners": int(aligned)}
    if mode != "nearest":
        return ("GridSample", reference, shapes, how)
    # No gradient reaches the grid.
    grid = np.random.default_rng(1).uniform(-2, 2, shapes[1])
    return (
        "GridSample",
        lambda x: reference(x, torch.tensor(grid, dtype=x.dtype)),
        shapes[:1],
        lambda x: op.GridSample(x, grid.astype(x.dtype), **how),
    )


VOLUME = ((2, 2, 3, 4, 3), (2, 2, 1, 3, 3))

ROWS: list[tuple[Any, ...]] = [
    *(
        sampled(mode, padding, aligned)
        for mode in TORCHS
        for padding in ("zeros", "border", "reflection")
        for aligned in (False, True)
    ),
    *(sampled("linear", padding, False, VOLUME) for padding in ("zeros", "border", "reflection")),
    sampled("nearest", "zeros", True, VOLUME),
    # One element along an axis.
    *(
        sampled("linear", padding, aligned, ((2, 2, 1, 3), (2, 2, 2, 2)))
        for padding in ("zeros", "border", "reflection")
        for aligned in (False, True)
    ),
    *(
        (
            "AffineGrid",
            lambda theta, s=size, a=aligned: functional.affine_grid(theta, s, a),
            [(2, len(size) - 2, len(size) - 1)],
            lambda theta, s=size, a=aligned: op.AffineGrid(theta, s, align_corners=int(a)),
        )
        for size in ([2, 3, 4, 5], [2, 3, 2, 3, 4])
        for aligned in (False, True)
    ),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    # A piece's second derivative is as right as its first; the cubic pieces' are long.
    check_row(row, order=2 if row[3] == {"mode": "linear", "padding_mode": "zeros", "align_corners": 1} else 1)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == sampling.__name__}
    assert rules == {row[0] for row in ROWS}


@pytest.mark.parametrize("mode", TORCHS)
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_named_dimensions(mode: str, padding: str, check_row_with_names: Callable[..., None]) -> None:
    dims = [("batch", 3, "height", "width"), ("batch", "rows", "columns", 2)]
    check_row_with_names(sampled(mode, padding, False), dims[:1] if mode == "nearest" else dims, sizes=(2,))


def test_a_named_batch(check_row_with_names: Callable[..., None]) -> None:
    dims = [("batch", 3, 4, 5), ("batch", 3, 2, 2)]
    check_row_with_names(sampled("linear", "zeros", False), dims)


def test_a_spatial_transformer(check_row: Callable[..., None]) -> None:
    """The grid depends on the image that it samples, and on a parameter."""

    def warped(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        mean = x.mean((1, 2, 3)).reshape(2, 1, 1)
        return functional.grid_sample(x, functional.affine_grid(theta * mean, [2, 3, 4, 5], False), align_corners=False)

    def traced(x: Any, theta: Any) -> Any:
        mean = op.Reshape(op.ReduceMean(x, [1, 2, 3]), [2, 1, 1])
        return op.GridSample(x, op.AffineGrid(theta * mean, [2, 3, 4, 5]))

    check_row(("GridSample", warped, [(2, 3, 4, 5), (2, 2, 3)], traced), order=1)


@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_exactly_at_the_border_follow_torch(padding: str, make_step: Callable[..., Any]) -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 3, 3)).astype(np.float32)
    grid = np.asarray([[[[-1, 0.3], [1, -1], [0.25, 1], [0, 0]]]], np.float32)
    tensors = [torch.tensor(a, requires_grad=True) for a in (x, grid)]
    expected = functional.grid_sample(tensors[0], tensors[1], "bilinear", padding, True)
    cotangent = np.ones((1, 1, 1, 4), np.float32)
    expected.backward(torch.tensor(cotangent))
    how = {"padding_mode": padding, "align_corners": 1}
    _, *gradients = make_step(lambda x, g: op.GridSample(x, g, **how), [x.shape, grid.shape]).run([x, grid], cotangent)
    for gradient, tensor in zip(gradients, tensors, strict=True):
        assert tensor.grad is not None
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-5, atol=1e-6)
