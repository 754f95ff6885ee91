"""Losses and their gradients at extreme logits, kinks and weights of zero, as graphs and in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch.nn import functional

from edgeopt import losses
from edgeopt import tracing as xp
from edgeopt.autodiff import backward
from edgeopt.lowering import lower
from edgeopt.tracing import Tracer, new_graph, new_model

INF = math.inf
PLAIN = [[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]]
LOGITS = [0.0, 200.0, -200.0, 1e30, -1e30]
LABELS = [0.0, 1.0, 0.5, 1.0, 0.0]
WEIGHTS = (0.0, 1.0, 1.0)


def weighted(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits, labels, weight=torch.tensor(WEIGHTS))


def smoothed(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits, labels, label_smoothing=0.1)


def with_weight(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(logits, labels, pos_weight=torch.tensor(2.0))


Case = tuple[losses.Loss, Callable[..., torch.Tensor], list[Any], list[Any]]
CASES: dict[str, Case] = {
    "large": (losses.CrossEntropy(), functional.cross_entropy, [[1e30, 0.0, -1e30], [0.0, 1e30, 0.0]], [0, 1]),
    "wrong": (losses.CrossEntropy(), functional.cross_entropy, [[1e30, 0.0, -1e30], [0.0, 1.0, 0.0]], [1, 1]),
    "masked": (losses.CrossEntropy(), functional.cross_entropy, [[-INF, 0.0, 1.0], [0.0, -INF, 2.0]], [1, 2]),
    "masked_label": (losses.CrossEntropy(), functional.cross_entropy, [[-INF, 0.0, 1.0], [0.0, 1.0, 2.0]], [0, 2]),
    "masked_smoothed": (losses.CrossEntropy(label_smoothing=0.1), smoothed, [[-INF, 0.0, 1.0], [0.0] * 3], [1, 2]),
    "masked_ignored": (losses.CrossEntropy(), functional.cross_entropy, [[-INF] * 3, [0.0, 1.0, 2.0]], [-100, 2]),
    "all_ignored": (losses.CrossEntropy(), functional.cross_entropy, PLAIN, [-100, -100]),
    "weights_of_zero": (losses.CrossEntropy(weight=WEIGHTS), weighted, PLAIN, [0, 0]),
    "a_weight_of_zero": (losses.CrossEntropy(weight=WEIGHTS), weighted, [[-INF, 0.0, 2.0], [0.0, 1.0, 2.0]], [0, 1]),
    "binary": (losses.BCEWithLogits(), functional.binary_cross_entropy_with_logits, LOGITS, LABELS),
    "binary_weighted": (losses.BCEWithLogits(pos_weight=2.0), with_weight, LOGITS, LABELS),
    "huber": (losses.Huber(), functional.huber_loss, [0.0, 1.0, 3.0, 1e30], [0.0, 2.0, 0.0, 0.0]),
    "l1": (losses.L1(), functional.l1_loss, [0.0, 1.0], [0.0, 2.0]),
    "mse": (losses.MSE(), functional.mse_loss, [1e30], [0.0]),
}


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_are_those_of_torch(name: str) -> None:
    loss, reference, prediction, target = CASES[name]
    x = torch.tensor(prediction, requires_grad=True)
    expected = reference(x, torch.tensor(target))
    expected.backward()
    array, labels = np.asarray(prediction, np.float32), torch.tensor(target).numpy()
    tracer = Tracer(new_graph("loss"))
    logits = tracer.input("x", np.float32, array.shape)
    total, weight = loss.terms(xp, logits, tracer.input("target", labels.dtype, labels.shape))
    value = total / weight
    (gradient,) = backward(tracer, {value.value: tracer.constant(np.float32(1))}, [logits.value])
    assert gradient is not None
    tracer.output(value, "loss")
    tracer.output(gradient, "gradient")
    lower(tracer)
    model = ir.serde.serialize_model(new_model(tracer.graph)).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": array, "target": labels})
    assert x.grad is not None
    np.testing.assert_allclose(found[0], expected.detach(), rtol=1e-5)
    np.testing.assert_allclose(found[1], x.grad, rtol=1e-5, atol=1e-7)
