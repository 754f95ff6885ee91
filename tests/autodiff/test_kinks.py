"""Where a derivative is undefined, or a formula would be 0/0, gradients are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.testing import check_gradients
from edgeopt.tracing import Array, op

Case = tuple[str, Callable[..., Array], Callable[..., torch.Tensor], list[Any]]

KINKS: list[Case] = [
    ("Abs", lambda x: op.Abs(x), torch.abs, [[0.0]]),
    ("Relu", lambda x: op.Relu(x), torch.relu, [[0.0]]),
    ("LeakyRelu", lambda x: op.LeakyRelu(x, alpha=0.1), lambda x: functional.leaky_relu(x, 0.1), [[0.0]]),
    ("PRelu", lambda x, a: op.PRelu(x, a), functional.prelu, [[0.0, -1.0], [0.3]]),
    ("Elu", lambda x: op.Elu(x, alpha=0.5), lambda x: functional.elu(x, 0.5), [[0.0, -200.0]]),
    ("Celu", lambda x: op.Celu(x, alpha=0.5), lambda x: functional.celu(x, 0.5), [[0.0, -200.0]]),
    ("Selu", lambda x: op.Selu(x), functional.selu, [[0.0, -200.0]]),
    ("Softplus", lambda x: op.Softplus(x), functional.softplus, [[0.0, -200.0, 200.0]]),
    ("Softsign", lambda x: op.Softsign(x), functional.softsign, [[0.0]]),
    ("Mish", lambda x: op.Mish(x), functional.mish, [[0.0, -60.0, 60.0]]),
    ("Gelu", lambda x: op.Gelu(x), functional.gelu, [[0.0, -60.0, 60.0]]),
    (
        "ThresholdedRelu",
        lambda x: op.ThresholdedRelu(x, alpha=1.0),
        lambda x: functional.threshold(x, 1.0, 0.0),
        [[1.0, 2.0]],
    ),
    ("HardSigmoid", lambda x: op.HardSigmoid(x, alpha=1 / 6, beta=0.5), functional.hardsigmoid, [[-3.0, 3.0, 0.0]]),
    ("HardSwish", lambda x: op.HardSwish(x), functional.hardswish, [[-3.0, 3.0, -2.5, 2.5]]),
    (
        "Shrink",
        lambda x: op.Shrink(x, lambd=0.5, bias=0.5),
        lambda x: functional.softshrink(x, 0.5),
        [[0.5, -0.5, 0.0, 0.7]],
    ),
    ("Clip", lambda x: op.Clip(x, -1.0, 1.0), functional.hardtanh, [[-1.0, 1.0, 2.0, 0.0]]),
    ("Clip", lambda x: op.Clip(x, 0.0, 6.0), functional.relu6, [[0.0, 6.0, 7.0, 1.0]]),
    ("Clip", lambda x, low: op.Clip(x, low), torch.maximum, [[1.0, 2.0, 3.0], 2.0]),
    ("Clip", lambda x, high: op.Clip(x, None, high), torch.minimum, [[1.0, 2.0, 3.0], 2.0]),
    ("Max", lambda a, b: op.Max(a, b), torch.maximum, [[1.0, 2.0], [1.0, 3.0]]),
    ("Min", lambda a, b: op.Min(a, b), torch.minimum, [[1.0, 2.0], [1.0, 3.0]]),
    ("ReduceMax", lambda x: op.ReduceMax(x, [0], keepdims=0), lambda x: torch.amax(x, 0), [[3.0, 1.0, 3.0]]),
    ("ReduceMin", lambda x: op.ReduceMin(x, [0], keepdims=0), lambda x: torch.amin(x, 0), [[3.0, 1.0, 1.0]]),
    ("ReduceL2", lambda x: op.ReduceL2(x, [0], keepdims=0), lambda x: x.norm(), [[0.0, 0.0]]),
    ("ReduceL1", lambda x: op.ReduceL1(x, [0], keepdims=0), lambda x: x.abs().sum(), [[0.0, -2.0]]),
    *(
        ("ReduceProd", lambda x: op.ReduceProd(x, [0], keepdims=0), lambda x: torch.prod(x), [x])
        for x in ([2.0, 0.0, 3.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [-2.0, 3.0, -4.0])
    ),
    *(
        ("Pow", lambda x, p=power: op.Pow(x, np.asarray(p, np.float32)), lambda x, p=power: x**p, [[0.0, -2.0, 3.0]])
        for power in (0.0, 1.0, 2.0, 3.0)
    ),
    ("Pow", lambda a, b: op.Pow(a, b), torch.pow, [[0.0, 0.0, 0.0, 2.0, -2.0], [0.0, 1.0, 2.0, 0.0, 2.0]]),
    ("Mod", lambda a, b: op.Mod(a, b, fmod=1), torch.fmod, [[5.5, -5.5, 5.5, -5.5], [2.0, 2.0, -2.0, -2.0]]),
    ("Where", lambda a, b: op.Where(a > b, a, b), lambda a, b: torch.where(a > b, a, b), [[1.0, 2.0], [1.0, 1.0]]),
    (
        "TopK",
        lambda x: x.tracer.emit("TopK", x, [2], outputs=2)[0],
        lambda x: torch.topk(x, 2).values,
        [[1.0, 3.0, 3.0, 3.0]],
    ),
]


@pytest.mark.parametrize("case", KINKS, ids=lambda case: case[0])
def test_gradients_are_those_of_torch(case: Case, make_step: Callable[..., Any]) -> None:
    operator, function, reference, values = case
    arrays = [np.asarray(value, np.float32) for value in values]
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    expected = reference(*tensors)
    cotangent = np.arange(1.0, 1.0 + expected.numel(), dtype=np.float32).reshape(tuple(expected.shape))
    expected.backward(torch.tensor(cotangent))
    results = make_step(function, [array.shape for array in arrays]).run(arrays, cotangent)
    np.testing.assert_allclose(results[0], expected.detach(), rtol=1e-5)
    for result, tensor in zip(results[1:], tensors, strict=True):
        assert tensor.grad is not None
        if operator == "TopK":
            # Which of the equal elements are the largest two is nobody's business.
            assert sorted(result) == sorted(tensor.grad.tolist())
        else:
            np.testing.assert_allclose(result, tensor.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("axes", [[1], [0, 2], None])
def test_products_with_zeros_can_be_differentiated_twice(zeros: int, axes: list[int] | None) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, (2, 3, 2))
    x[0, :zeros, 0] = 0.0
    for order in (1, 2):
        check_gradients(lambda x: op.ReduceProd(x, axes), [x], order=order)
