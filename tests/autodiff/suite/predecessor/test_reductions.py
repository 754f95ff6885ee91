from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

X = (4, 3, 2)
# Axes, None for all, and whether they stay.
AXES: list[tuple[list[int] | None, int]] = [
    (None, 1), (None, 0), ([0, 1, 2], 1), ([0, 1, 2], 0), ([0, 2], 1), ([0, 1], 0), ([1], 1), ([1], 0), ([2], 1),
    ([-2], 0), ([-2, -1], 1), ([-2, -1], 0),
]  # fmt: skip
REDUCTIONS: list[tuple[str, int, Callable[..., torch.Tensor]]] = [
    ("ReduceMean", 18, lambda x, d, k: x.mean(d, k)),
    ("ReduceSum", 13, lambda x, d, k: x.sum(d, k)),
    ("ReduceL2", 18, lambda x, d, k: torch.linalg.vector_norm(x, 2, d, k)),
    ("ReduceLogSumExp", 18, lambda x, d, k: torch.logsumexp(x, d, k)),
]


def reductions(operator: str, changed: int, function: Callable[..., torch.Tensor]) -> list[tuple[Any, ...]]:
    """With axes as an attribute, and from opset `changed` on as an input."""
    rows: list[tuple[Any, ...]] = []
    for axes, keepdims in AXES:
        positive = tuple(axis % 3 for axis in axes) if axes else (0, 1, 2)

        def reference(x: torch.Tensor, d: tuple[int, ...] = positive, k: int = keepdims) -> torch.Tensor:
            return function(x, d, bool(k))

        older = {"keepdims": keepdims} if axes is None else {"keepdims": keepdims, "axes": axes}
        operands = [X] if axes is None else [X, np.asarray(axes)]
        rows.append((operator, (11,), [X], older, reference))
        rows.append((operator, (changed, 20), operands, {"keepdims": keepdims}, reference))
    return rows


def trained(epsilon: float) -> Callable[..., Any]:
    """Output and running statistics."""

    def reference(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> Any:
        axes = (0, *range(2, x.ndim))
        y = functional.batch_norm(x, None, None, w, b, True, eps=epsilon)
        return y, 0.9 * mean + 0.1 * x.mean(axes), 0.9 * var + 0.1 * x.var(axes, correction=0)

    return reference


def simplified(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def batch_norm(shape: tuple[int, ...], epsilon: float | None) -> tuple[Any, ...]:
    how = {"training_mode": 1, **({} if epsilon is None else {"epsilon": epsilon})}
    inputs = [shape, *[(shape[1],)] * 4]
    reference = trained(epsilon or 1e-5)
    return ("BatchNormalization", (14, 15), inputs, how, reference, "channels", "types", ["FLOAT"] * 3)


CASES: list[tuple[Any, ...]] = [
    *(row for reduction in REDUCTIONS for row in reductions(*reduction)),
    *(
        (
            operator, (13, 20), [(2, 3, 4)], {} if axis is None else {"axis": axis},
            lambda x, f=function, a=axis: f(x, -1 if a is None else a),
        )
        for operator, function in (("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax))
        for axis in (None, 0, 1, 2)
    ),
    # Before opset 13 over everything from the axis on, which is 1 if none is given.
    *(
        (
            operator, (7, 11), [(2, 3, 4)], {} if axis is None else {"axis": axis},
            lambda x, f=function, a=axis: f(x.flatten(1 if a is None else a), -1).reshape(x.shape),
        )
        for operator, function in (("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax))
        for axis in (None, 0, 1, 2)
    ),
    *(
        batch_norm(shape, epsilon)
        for shape, epsilon in [
            ((3, 3, 2, 4), 1e-5), ((3, 1, 2, 4), 1e-5), ((2, 4, 2), 1e-5), ((2, 4, 2), None), ((4, 5, 3, 2, 2), 1e-5),
        ]
    ),
    *(
        (
            "LayerNormalization", (17,), [shape, shape[-1:], shape[-1:]], {},
            lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b),
        )
        for shape in [(2, 3, 4), (2, 3, 8)]
    ),
    *(
        ("SimplifiedLayerNormalization", (17,), [shape, shape[-1:]], {"epsilon": 1e-5}, simplified)
        for shape in [(2, 3, 4), (2, 3, 8)]
    ),
]  # fmt: skip


def test_gradients(case: tuple[Any, ...], check_case: Callable[..., None]) -> None:
    check_case(case)
