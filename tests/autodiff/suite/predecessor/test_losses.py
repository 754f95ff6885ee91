from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.testing import check_gradients
from edgeopt.tracing import op

RANDOM = np.random.default_rng(0)


def entropy(
    operator: str, labels: tuple[int, ...], classes: int, reduction: str, weighted: bool, ignored: int | None
) -> tuple[Any, ...]:
    """Cross-entropy of logits, or of logarithms of probabilities, with the classes along axis 1."""
    target = RANDOM.integers(0, classes, labels)
    weight = RANDOM.uniform(0.5, 2, classes).astype(np.float32) if weighted else None
    how: dict[str, Any] = {"reduction": reduction}
    if ignored is not None:
        how["ignore_index"] = ignored
        # The first position is ignored, the second is not.
        target.reshape(-1)[:2] = ignored, 1
    function = functional.cross_entropy if operator == "SoftmaxCrossEntropyLoss" else functional.nll_loss

    def reference(x: torch.Tensor) -> torch.Tensor:
        of_classes = None if weight is None else torch.tensor(weight, dtype=torch.float64)
        absent = -100 if ignored is None else ignored
        return function(x, torch.tensor(target), of_classes, ignore_index=absent, reduction=reduction)

    inputs = [(labels[0], classes, *labels[1:]), target, weight]
    return (operator, (13,), inputs, how, reference, "static")


CASES: list[tuple[Any, ...]] = [
    *(
        entropy("SoftmaxCrossEntropyLoss", labels, 2, reduction, weighted, ignored)
        for labels in [(5,), (2,), (2, 3, 2)]
        for reduction in ("mean", "sum", "none")
        for ignored in (0, -1)
        for weighted in (False, True)
    ),
    *(
        entropy("NegativeLogLikelihoodLoss", (2, 3, 2), 3, reduction, weighted, ignored)
        for reduction in ("mean", "sum", "none")
        for ignored in (None, 0)
        for weighted in (False, True)
    ),
    # As the predecessor's own operators with labels for indices.
    *(
        entropy("SoftmaxCrossEntropyLoss", labels, 7, reduction, weighted, None)
        for labels in [(5,), (2, 3, 2)]
        for reduction in ("mean", "sum")
        for weighted in (False, True)
    ),
]


@pytest.mark.parametrize("shape", [(5, 11), (2, 3, 2, 11)], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_of_probabilities(shape: tuple[int, ...], weighted: bool) -> None:
    """The predecessor's own operator, with the classes last and probabilities for labels, is these three of ONNX."""
    labels = RANDOM.dirichlet(np.ones(shape[-1]), shape[:-1])
    weight = RANDOM.uniform(0.5, 2, (*shape[:-1], 1)) if weighted else np.asarray(1.0)

    def loss(x: Any) -> Any:
        return op.Neg(op.ReduceSum(op.LogSoftmax(x, axis=-1) * labels * weight, keepdims=0))

    check_gradients(loss, [RANDOM.standard_normal(shape)])


def test_gradients(case: tuple[Any, ...], check_case: Callable[..., None]) -> None:
    check_case(case)
