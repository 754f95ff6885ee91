from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch.nn import functional

from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import activations
from edgeopt.testing import check_gradients
from edgeopt.tracing import op

X = [(3, 4)]

ROWS: list[tuple[Any, ...]] = [
    ("Relu", torch.relu, X, {}),
    ("Softplus", functional.softplus, X, {}),
    ("LeakyRelu", lambda x: functional.leaky_relu(x, 0.25), X, {"alpha": 0.25}),
    ("Elu", lambda x: functional.elu(x, 1.5), X, {"alpha": 1.5}),
    ("Selu", functional.selu, X, {}),
    ("Mish", functional.mish, X, {}),
    ("Softsign", functional.softsign, X, {}),
    ("ThresholdedRelu", lambda x: functional.threshold(x, 0.5, 0.0), X, {"alpha": 0.5}),
    ("Shrink", lambda x: functional.softshrink(x, 0.5), X, {"lambd": 0.5, "bias": 0.5}),
    ("Shrink", lambda x: functional.hardshrink(x, 0.75), X, {"lambd": 0.75}),
    ("PRelu", lambda x, a: torch.where(x > 0, x, a * x), [(2, 3, 4), (3, 1)], {}),
    ("PRelu", lambda x, a: functional.prelu(x, a), [(3, 4), (1,)], {}),
    ("HardSigmoid", lambda x: torch.clamp(0.3 * x + 0.4, 0.0, 1.0), X, {"alpha": 0.3, "beta": 0.4}),
    ("HardSwish", lambda x: functional.hardswish(x * 3.0) / 3, X, lambda x: op.HardSwish(x * 3.0) * (1 / 3)),
    ("Gelu", functional.gelu, X, {}),
    ("Gelu", lambda x: functional.gelu(x, approximate="tanh"), X, {"approximate": "tanh"}),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_celu(alpha: float, check_row: Callable[..., None]) -> None:
    """ONNX defines Celu for float32 alone; only a whole model can be made float64."""
    check_row(("Celu", lambda x: functional.celu(x, alpha), X, {"alpha": alpha}), order=0)
    text = f'<ir_version: 9, opset_import: ["" : 20]> f (float[6] x) => (float[6] y) {{ y = Celu<alpha = {alpha}>(x) }}'
    for order in (1, 2):
        check_gradients(onnx.parser.parse_model(text), [np.linspace(-2, 2, 6)], order=order)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == activations.__name__}
    assert rules - {"Celu"} == {row[0] for row in ROWS}


KINKS = [
    ("Relu", functional.relu, {}),
    ("LeakyRelu", lambda x: functional.leaky_relu(x, 0.25), {"alpha": 0.25}),
    ("HardSwish", functional.hardswish, {}),
    ("HardSigmoid", functional.hardsigmoid, {"alpha": 1 / 6}),
    ("Elu", functional.elu, {}),
    ("Selu", functional.selu, {}),
]


@pytest.mark.parametrize(("operator", "reference", "how"), KINKS, ids=[row[0] for row in KINKS])
def test_at_the_kinks_torchs_choice_is_taken(
    operator: str, reference: Callable[[torch.Tensor], torch.Tensor], how: dict[str, Any], make_step: Callable[..., Any]
) -> None:
    x = np.asarray([-3.0, 0.0, 3.0], np.float32)
    tensor = torch.tensor(x, requires_grad=True)
    reference(tensor).sum().backward()
    assert tensor.grad is not None
    gradient = make_step(lambda x: getattr(op, operator)(x, **how), [(3,)]).run([x], np.ones(3, np.float32))[1]
    np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-6)
