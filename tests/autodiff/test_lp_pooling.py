from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import lp_pooling
from edgeopt.tracing import op

CONV: dict[int, Callable[..., torch.Tensor]] = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def norm(
    shape: tuple[int, ...],
    kernel: Sequence[int],
    strides: Sequence[int],
    power: int = 2,
    padding: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    behind: int = 0,
) -> tuple[Any, ...]:
    """A row for LpPool. torch's own operator knows neither padding nor dilations; there it is a convolution.

    With `ceil_mode` the last window reaches `behind` elements further than there are.
    """
    rank = len(kernel)
    padding, dilations = list(padding or [0] * rank), list(dilations or [1] * rank)

    def reference(x: torch.Tensor) -> torch.Tensor:
        images = (x.abs() ** power).flatten(0, 1).unsqueeze(1)
        images = functional.pad(images, (0, behind) * rank)
        weight = torch.ones(1, 1, *kernel, dtype=x.dtype)
        total = CONV[rank](images, weight, None, list(strides), padding, dilations)
        return (total ** (1 / power)).reshape(*x.shape[:2], *total.shape[2:])

    how = {
        "kernel_shape": kernel,
        "strides": strides,
        "pads": padding * 2,
        "dilations": dilations,
        "p": power,
        "ceil_mode": int(behind > 0),
    }
    return ("LpPool", reference, [shape], how)


ROWS: list[tuple[Any, ...]] = [
    norm((2, 2, 9), [2], [2]),
    norm((2, 2, 9), [3], [1], padding=[1]),
    norm((2, 3, 6, 5), [2, 3], [2, 1], power=3),
    norm((2, 3, 6, 5), [3, 3], [2, 2], power=1, padding=[1, 1]),
    norm((2, 3, 7, 6), [2, 2], [1, 2], dilations=[2, 1]),
    norm((1, 2, 4, 5, 3), [2, 2, 2], [2, 1, 1], padding=[0, 1, 0]),
    norm((2, 2, 5, 5), [2, 2], [2, 2], behind=1),
    norm((2, 2, 6, 6), [3, 3], [2, 2], power=3, behind=1),
    norm((2, 2, 7), [3], [3], padding=[1], behind=1),
    *(
        ("GlobalLpPool", lambda x, p=power: (x.abs() ** p).sum((2, 3), True) ** (1 / p), [(2, 3, 4, 5)], {"p": power})
        for power in (1, 2, 3)
    ),
    ("GlobalLpPool", lambda x: x.norm(dim=2, keepdim=True), [(2, 3, 4)], {}),
]  # fmt: skip


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == lp_pooling.__name__}
    assert rules == {row[0] for row in ROWS}


def test_named_dimensions(row: tuple[Any, ...], check_row_with_names: Callable[..., None]) -> None:
    rank = len(row[2][0]) - 2
    check_row_with_names(row, [("batch", row[2][0][1], *("depth", "height", "width")[-rank:])])


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("dims", [(2, 3, 6, 5), ("batch", 3, "height", "width")], ids=str)
def test_automatic_padding(auto_pad: str, dims: tuple[int | str, ...], make_step: Callable[..., Any]) -> None:
    """A norm is homogeneous, f(tx) = t f(x), so the gradient times x is the output itself."""
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 5)).astype(np.float32)
    how = {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": auto_pad, "p": 2}
    step = make_step(lambda x: op.LpPool(x, **how), [dims])
    spatial = (2, 2) if auto_pad == "VALID" else (3, 3)
    cotangent = np.random.default_rng(1).standard_normal((2, 3, *spatial)).astype(np.float32)
    output, gradient = step.run([x], cotangent)
    np.testing.assert_allclose((gradient * x).sum((2, 3)), (output * cotangent).sum((2, 3)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("power", [1, 2, 3])
def test_a_norm_of_zero_has_gradient_zero(power: int, make_step: Callable[..., Any]) -> None:
    x = np.zeros((1, 1, 4, 4), np.float32)
    step = make_step(lambda x: op.LpPool(x, kernel_shape=[2, 2], strides=[2, 2], p=power), [x.shape])
    _, gradient = step.run([x], np.ones((1, 1, 2, 2), np.float32))
    np.testing.assert_array_equal(gradient, x)
