"""What docs/gradients.md says of equal elements, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.tracing import Array, op

# Three levels, so that most windows and rows have several largest elements.
X = np.random.default_rng(0).integers(0, 3, (2, 3, 4, 6)).astype(np.float32)
OTHER = np.random.default_rng(1).integers(0, 3, X.shape).astype(np.float32)


def largest(x: Array) -> Array:
    return x.tracer.emit("TopK", x, [2], outputs=2, axis=-1)[0]


CASES: dict[str, tuple[Callable[..., Array], Callable[..., torch.Tensor], list[Any]]] = {
    "MaxPool": (
        lambda x: op.MaxPool(x, kernel_shape=[2, 3], strides=[2, 3]),
        lambda x: functional.max_pool2d(x, (2, 3)),
        [X],
    ),
    "GlobalMaxPool": (op.GlobalMaxPool, lambda x: functional.adaptive_max_pool2d(x, 1), [X]),
    "ReduceMax": (lambda x: op.ReduceMax(x, [1, 3], keepdims=0), lambda x: x.amax((1, 3)), [X]),
    "ReduceMin": (lambda x: op.ReduceMin(x, [2], keepdims=1), lambda x: x.amin(2, True), [X]),
    "Max": (op.Max, torch.maximum, [X, OTHER]),
    "Min": (op.Min, torch.minimum, [X, OTHER]),
    "TopK": (largest, lambda x: torch.sort(x, stable=True, dim=-1, descending=True).values[..., :2], [X]),
}


@pytest.mark.parametrize("operator", CASES)
def test_equal_elements(operator: str, make_step: Callable[..., Any]) -> None:
    function, reference, arrays = CASES[operator]
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    expected = reference(*tensors)
    cotangent = np.random.default_rng(2).standard_normal(tuple(expected.shape)).astype(np.float32)
    expected.backward(torch.tensor(cotangent))
    _, *gradients = make_step(function, [array.shape for array in arrays]).run(arrays, cotangent)
    for gradient, tensor in zip(gradients, tensors, strict=True):
        assert tensor.grad is not None
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-6, atol=1e-6)
