from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

MAX: dict[int, Callable[..., torch.Tensor]] = {
    1: functional.max_pool1d,
    2: functional.max_pool2d,
    3: functional.max_pool3d,
}
AVERAGE: dict[int, Callable[..., torch.Tensor]] = {
    1: functional.avg_pool1d,
    2: functional.avg_pool2d,
    3: functional.avg_pool3d,
}


def shuffled(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers far enough from each other that differences exchange no two of them."""
    numbers = np.arange(int(np.prod(shape))) * 0.01
    return np.random.default_rng(0).permutation(numbers).reshape(shape)


def maximum(x: Any, kernel: int, stride: int, padding: int, *words: str) -> tuple[Any, ...]:
    rank = x.ndim - 2
    how = {"kernel_shape": [kernel] * rank, "strides": [stride] * rank, "pads": [padding] * 2 * rank}
    return ("MaxPool", (8, 10, 12), [x], how, lambda x: MAX[rank](x, kernel, stride, padding), "channels", *words)


def average(x: tuple[int, ...], kernel: int, stride: int, padding: int, include: int) -> tuple[Any, ...]:
    rank = len(x) - 2
    how = {
        "kernel_shape": [kernel] * rank,
        "strides": [stride] * rank,
        "pads": [padding] * 2 * rank,
        "count_include_pad": include,
    }

    def reference(x: torch.Tensor) -> torch.Tensor:
        return AVERAGE[rank](x, kernel, stride, padding, count_include_pad=bool(include))

    # Second derivatives in three dimensions take long; ../../test_pooling.py has some.
    return ("AveragePool", (7, 11, 19), [x], how, reference, *(["once"] if rank == 3 else []))


CASES: list[tuple[Any, ...]] = [
    maximum(shuffled(2, 2, 9), 2, 2, 0),
    maximum(shuffled(2, 3, 5, 5), 2, 1, 0),
    maximum(shuffled(1, 1, 5, 5), 3, 2, 1),
    maximum(shuffled(1, 1, 32, 32), 5, 3, 0, "once"),
    maximum(shuffled(2, 1, 3, 3, 3), 2, 1, 0),
    average((2, 3, 8), 2, 2, 0, 0),
    average((2, 3, 7, 7), 3, 1, 0, 0),
    average((1, 2, 4, 4, 4), 2, 2, 0, 0),
    average((1, 3, 8), 3, 2, 1, 0),
    average((1, 3, 7, 7), 3, 2, 1, 1),
    average((1, 3, 7, 7), 3, 2, 1, 0),
    average((1, 1, 5, 5, 5), 3, 2, 1, 0),
    average((1, 1, 5, 5, 5), 3, 2, 1, 1),
    *(
        ("GlobalAveragePool", (7, 20), [shape], {}, lambda x: x.mean((2, 3), True))
        for shape in [(2, 3, 5, 5), (2, 1, 3, 3)]
    ),
    *(
        ("GlobalMaxPool", (7, 20), [shuffled(*shape)], {}, lambda x: x.amax((2, 3), True))
        for shape in [(2, 3, 5, 5), (2, 1, 3, 3)]
    ),
]  # fmt: skip


def test_gradients(case: tuple[Any, ...], check_case: Callable[..., None]) -> None:
    check_case(case)
