from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.autodiff import backward
from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import normalisation
from edgeopt.testing import check_gradients
from edgeopt.tracing import Array, Tracer, new_graph, op


def training_batch_norm(epsilon: float = 1e-5) -> Callable[..., Array]:
    def function(x: Array, scale: Array, bias: Array) -> Array:
        statistics = np.zeros(scale.shape[0] if isinstance(scale.shape[0], int) else 0, x.dtype)
        outputs = x.tracer.emit(
            "BatchNormalization", x, scale, bias, statistics, statistics, epsilon=epsilon, training_mode=1, outputs=3
        )
        return outputs[0]

    return function


def running_statistics(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, momentum: float = 0.7
) -> list[Array]:
    """All three outputs; the last two are what inference will use."""
    how = {"momentum": momentum, "training_mode": 1, "outputs": 3}
    return list(x.tracer.emit("BatchNormalization", x, scale, bias, mean, variance, **how))


def batch_norm(epsilon: float = 1e-5) -> Callable[..., torch.Tensor]:
    return lambda x, w, b: functional.batch_norm(x, None, None, w, b, True, eps=epsilon)


def frozen_batch_norm(x: Array, scale: Array, bias: Array, mean: Array, root: Array) -> Array:
    return op.BatchNormalization(x, scale, bias, mean, root * root + 0.5)


def frozen_reference(
    x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor, mean: torch.Tensor, root: torch.Tensor
) -> torch.Tensor:
    """torch's own operator has no gradient with respect to the statistics."""
    scale, bias, mean, root = (v.reshape(1, -1, *[1] * (x.ndim - 2)) for v in (scale, bias, mean, root))
    return (x - mean) / torch.sqrt(root * root + 0.5 + 1e-5) * scale + bias


def layer_norm(axis: int) -> Callable[..., torch.Tensor]:
    return lambda x, w, b=None: functional.layer_norm(x, x.shape[axis:], w, b, 1e-3)


ROWS: list[tuple[Any, ...]] = [
    # The shapes of ONNX Runtime's own training tests.
    *(
        ("BatchNormalization", batch_norm(), [shape, (shape[1],), (shape[1],)], training_batch_norm())
        for shape in [(3, 3, 2, 4), (3, 1, 2, 4), (1, 4, 2), (6, 5, 3, 2, 4), (7, 3)]
    ),
    ("BatchNormalization", batch_norm(0.1), [(3, 2, 4), (2,), (2,)], training_batch_norm(0.1)),
    *(
        (
            "BatchNormalization",
            frozen_reference,
            [shape, *[(shape[1],)] * 4],
            frozen_batch_norm,
        )
        for shape in [(3, 3, 2, 4), (7, 3)]
    ),
    ("LayerNormalization", layer_norm(-1), [(2, 3, 4), (4,), (4,)], {"epsilon": 1e-3}),
    ("LayerNormalization", layer_norm(1), [(2, 3, 4), (3, 4), (3, 4)], {"epsilon": 1e-3, "axis": 1}),
    ("LayerNormalization", layer_norm(0), [(3, 4), (3, 4), (3, 4)], {"epsilon": 1e-3, "axis": 0}),
    (
        "LayerNormalization",
        lambda x, w, b: functional.layer_norm(x, (4,), None, None, 1e-3) * w + b,
        [(2, 3, 4), (1,), ()],
        {"epsilon": 1e-3},
    ),
    ("LayerNormalization", layer_norm(-1), [(2, 3, 8), (8,)], {"epsilon": 1e-3}),
    ("LayerNormalization", layer_norm(-1), [(3, 8), (8,), (8,)], {"epsilon": 1e-3}),
    *(
        (
            "InstanceNormalization",
            lambda x, w, b: functional.instance_norm(x, weight=w, bias=b, eps=1e-3),
            [shape, (3,), (3,)],
            {"epsilon": 1e-3},
        )
        for shape in [(2, 3, 5), (2, 3, 4, 5), (2, 3, 2, 2, 3)]
    ),
    (
        "MeanVarianceNormalization",
        lambda x: (x - x.mean((0, 2, 3), True)) / x.std((0, 2, 3), correction=0, keepdim=True),
        [(2, 3, 4, 5)],
        {"axes": [0, 2, 3]},
    ),
    *(
        (
            "LpNormalization",
            lambda x, a=axis, p=order: functional.normalize(x, float(p), a),
            [(3, 4, 2)],
            {"axis": axis, "p": order},
        )
        for axis in (-1, 1)
        for order in (1, 2)
    ),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == normalisation.__name__}
    assert rules == {row[0] for row in ROWS}


@pytest.mark.parametrize("spatial", [("height", "width"), (4, 5)], ids=str)
def test_batch_norm_with_named_dimensions(
    spatial: tuple[int | str, ...], check_row_with_names: Callable[..., None]
) -> None:
    row = ("BatchNormalization", batch_norm(), [(2, 3, 4, 5), (3,), (3,)], training_batch_norm())
    check_row_with_names(row, [("batch", 3, *spatial), (3,), (3,)])


def test_layer_norm_with_named_dimensions(check_row_with_names: Callable[..., None]) -> None:
    row = ("LayerNormalization", layer_norm(-1), [(2, 3, 8), (8,), (8,)], {"epsilon": 1e-3})
    check_row_with_names(row, [("batch", "sequence", 8), (8,), (8,)])


def test_frozen_statistics_cost_no_reduction_where_only_the_input_needs_a_gradient() -> None:
    tracer = Tracer(new_graph("frozen"))
    x = tracer.input("x", np.float32, ("batch", 3, 4, 4))
    ones = np.ones(3, np.float32)
    y = op.BatchNormalization(x, ones, ones, ones, ones)
    backward(tracer, {y.value: y}, [x.value])
    assert "ReduceSum" not in {node.op_type for node in tracer.graph}


@pytest.mark.parametrize("shape", [(4, 3, 2), (4, 3)], ids=str)
def test_running_statistics_depend_on_the_batch_too(shape: tuple[int, ...]) -> None:
    inputs = [np.random.default_rng(0).random(size) + 0.5 for size in (shape, *[(3,)] * 4)]
    check_gradients(running_statistics, inputs)
    check_gradients(running_statistics, inputs, order=2)


def test_statistics_of_layer_norm_depend_on_its_input(make_step: Callable[..., Any]) -> None:
    """They are float32 whatever the input is, so that differences in float64 cannot check them."""

    def total(x: Array) -> Array:
        ones = np.ones(4, np.float32)
        y, mean, inverse = x.tracer.emit("LayerNormalization", x, ones, outputs=3, epsilon=1e-3)
        return y * mean + inverse * inverse

    x = torch.tensor(np.random.default_rng(0).standard_normal((2, 3, 4)), dtype=torch.float32, requires_grad=True)
    mean = x.mean(-1, keepdim=True)
    inverse = 1 / torch.sqrt(x.var(-1, correction=0, keepdim=True) + 1e-3)
    expected = (x - mean) * inverse * mean + inverse * inverse
    cotangent = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    expected.backward(torch.tensor(cotangent))
    assert x.grad is not None
    output, gradient = make_step(total, [(2, 3, 4)]).run([x.detach().numpy()], cotangent)
    np.testing.assert_allclose(output, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("order", [1, 2])
def test_normalised_zeros_have_gradient_zero(order: int, make_step: Callable[..., Any]) -> None:
    x = np.asarray([[3.0, 0.0], [-4.0, 0.0]], np.float32)
    step = make_step(lambda x: op.LpNormalization(x, axis=0, p=order), [(2, 2)])
    gradient = step.run([x], np.ones((2, 2), np.float32))[1]
    np.testing.assert_array_equal(gradient[:, 1], [0.0, 0.0])
    assert np.isfinite(gradient).all()
