from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_compat.numpy
import array_api_compat.torch
import numpy as np
import pytest
import torch

from edgeopt.losses import Loss


@pytest.fixture(scope="session")
def assert_equals_torch() -> Callable[..., None]:
    """Compare a loss with a torch function: its value in both namespaces, and its gradient by torch's autograd."""

    def value(loss: Loss, xp: Any, prediction: Any, target: Any) -> Any:
        total, weight = loss.terms(xp, prediction, target)
        return total / weight

    def check(
        loss: Loss, reference: Callable[[Any, Any], Any], prediction: Any, target: Any, rtol: float = 1e-11
    ) -> None:
        expected_input = torch.tensor(prediction, requires_grad=True)
        expected = reference(expected_input, torch.tensor(target))
        expected.backward()

        with np.errstate(invalid="ignore", divide="ignore"):
            by_numpy = value(loss, array_api_compat.numpy, prediction, target)
        np.testing.assert_allclose(by_numpy, expected.detach(), rtol=rtol, atol=rtol)

        our_input = torch.tensor(prediction, requires_grad=True)
        by_torch = value(loss, array_api_compat.torch, our_input, torch.tensor(target))
        by_torch.backward()
        np.testing.assert_allclose(by_torch.detach(), expected.detach(), rtol=rtol, atol=rtol)
        np.testing.assert_allclose(np.asarray(our_input.grad), np.asarray(expected_input.grad), rtol=rtol, atol=rtol)

    return check
