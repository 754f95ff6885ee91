from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import pooling
from edgeopt.tracing import op

MAX: dict[int, Callable[..., Any]] = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
AVERAGE: dict[int, Callable[..., Any]] = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


def maximum(
    shape: tuple[int, ...],
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> tuple[Any, ...]:
    rank = len(kernel)
    padding, dilations = list(padding or [0] * rank), list(dilations or [1] * rank)

    def reference(x: torch.Tensor) -> Any:
        return MAX[rank](x, kernel, strides, padding, dilations, ceil_mode)

    how = {"kernel_shape": kernel, "strides": strides, "pads": padding * 2, "ceil_mode": int(ceil_mode)}
    return ("MaxPool", reference, [shape], how if set(dilations) == {1} else {**how, "dilations": dilations})


def average(
    shape: tuple[int, ...],
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int] | None = None,
    ceil_mode: bool = False,
    include: bool = False,
) -> tuple[Any, ...]:
    rank = len(kernel)
    padding = list(padding or [0] * rank)

    def reference(x: torch.Tensor) -> Any:
        return AVERAGE[rank](x, kernel, strides, padding, ceil_mode, include)

    how = {
        "kernel_shape": kernel,
        "strides": strides,
        "pads": padding * 2,
        "ceil_mode": int(ceil_mode),
        "count_include_pad": int(include),
    }
    return ("AveragePool", reference, [shape], how)


ROWS: list[tuple[Any, ...]] = [
    maximum((2, 2, 9), [2], [1]),
    maximum((2, 3, 8, 8), [2, 2], [2, 2]),
    maximum((2, 3, 9, 7), [2, 2], [2, 2]),
    maximum((2, 3, 5, 5), [2, 2], [1, 1]),
    maximum((2, 3, 9, 8), [3, 3], [2, 2], [1, 1]),
    maximum((2, 3, 9, 8), [3, 3], [2, 2], [1, 1], ceil_mode=True),
    maximum((2, 3, 8, 8), [3, 2], [2, 3], [1, 1], ceil_mode=True),
    maximum((1, 1, 16, 16), [5, 5], [3, 3]),
    maximum((2, 3, 10), [3], [2], dilations=[2]),
    maximum((2, 2, 9, 9), [2, 3], [2, 1], [1, 1], dilations=[2, 3]),
    maximum((1, 2, 4, 4, 4), [2, 2, 2], [1, 2, 2]),
    maximum((1, 2, 5, 6, 4), [2, 2, 2], [1, 2, 2], [0, 1, 0], ceil_mode=True),
    *(
        average(shape, kernel, strides, padding, ceil_mode, include)
        for include in (False, True)
        for ceil_mode in (False, True)
        for shape, kernel, strides, padding in (
            ((2, 2, 8), [2], [2], [0]),
            ((2, 2, 9), [3], [2], [1]),
            ((2, 3, 9, 8), [3, 3], [2, 2], [1, 1]),
            ((2, 3, 8, 7), [3, 3], [2, 2], [0, 0]),
            ((1, 2, 5, 6, 4), [2, 3, 2], [1, 2, 2], [0, 1, 0]),
        )
    ),
    ("GlobalAveragePool", lambda x: x.mean((2, 3), keepdim=True), [(2, 3, 5, 5)], {}),
    ("GlobalAveragePool", lambda x: x.mean(2, keepdim=True), [(2, 1, 3)], {}),
    ("GlobalMaxPool", lambda x: functional.adaptive_max_pool2d(x, 1), [(2, 3, 5, 4)], {}),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == pooling.__name__}
    assert rules == {row[0] for row in ROWS}


def test_named_dimensions(row: tuple[Any, ...], check_row_with_names: Callable[..., None]) -> None:
    rank = len(row[2][0]) - 2
    check_row_with_names(row, [("batch", row[2][0][1], *("depth", "height", "width")[-rank:])])


EQUAL = [
    maximum((2, 3, 8, 8), [2, 2], [2, 2]),
    maximum((2, 3, 9, 8), [3, 3], [2, 2], [1, 1]),
    maximum((2, 3, 9, 8), [3, 3], [2, 2], [1, 1], ceil_mode=True),
    maximum((2, 3, 10), [3], [2], dilations=[2]),
    maximum((1, 2, 5, 6, 4), [2, 2, 2], [1, 2, 2], [0, 1, 0]),
    ("GlobalMaxPool", lambda x: functional.adaptive_max_pool2d(x, 1), [(2, 3, 5, 4)], {}),
]


@pytest.mark.parametrize("equal_row", EQUAL, ids=[f"{row[0]}-{i}" for i, row in enumerate(EQUAL)])
@pytest.mark.parametrize("levels", [1, 3])
def test_of_equal_elements_the_first_takes_the_gradient(
    equal_row: tuple[Any, ...], levels: int, make_step: Callable[..., Any]
) -> None:
    """As in torch; over a constant background a convolution's outputs are equal, and positive where its bias is."""
    operator, reference, (shape,), how = equal_row
    x = np.random.default_rng(0).integers(0, levels, shape).astype(np.float32)
    tensor = torch.tensor(x, requires_grad=True)
    expected = reference(tensor)
    cotangent = np.random.default_rng(1).standard_normal(tuple(expected.shape)).astype(np.float32)
    expected.backward(torch.tensor(cotangent))
    _, gradient = make_step(lambda x: getattr(op, operator)(x, **how), [shape]).run([x], cotangent)
    assert tensor.grad is not None
    np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("dims", [(2, 3, 6, 5), ("batch", 3, "height", "width")], ids=str)
def test_automatic_padding(
    auto_pad: str, operator: str, dims: tuple[int | str, ...], make_step: Callable[..., Any]
) -> None:
    """Pooling is positively homogeneous, f(tx) = t f(x), so the gradient times x is the output itself."""
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 5)).astype(np.float32)
    how = {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": auto_pad}
    step = make_step(lambda x: getattr(op, operator)(x, **how), [dims])
    spatial = (2, 2) if auto_pad == "VALID" else (3, 3)
    cotangent = np.random.default_rng(1).standard_normal((2, 3, *spatial)).astype(np.float32)
    output, gradient = step.run([x], cotangent)
    np.testing.assert_allclose((gradient * x).sum((2, 3)), (output * cotangent).sum((2, 3)), rtol=1e-4, atol=1e-5)


def test_dilated_average(make_step: Callable[..., Any]) -> None:
    """onnxruntime-training gets this one wrong and says nothing. In torch it is a convolution."""
    x = np.random.default_rng(0).standard_normal((2, 1, 7, 6)).astype(np.float32)
    how = {"kernel_shape": [2, 2], "strides": [1, 2], "dilations": [2, 2]}
    tensor = torch.tensor(x, requires_grad=True)
    expected = functional.conv2d(tensor, torch.full((1, 1, 2, 2), 0.25), None, [1, 2], 0, [2, 2])
    cotangent = np.random.default_rng(1).standard_normal(tuple(expected.shape)).astype(np.float32)
    expected.backward(torch.tensor(cotangent))
    output, gradient = make_step(lambda x: op.AveragePool(x, **how), [x.shape]).run([x], cotangent)
    assert tensor.grad is not None
    np.testing.assert_allclose(output, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-5, atol=1e-6)
