from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

RANDOM = np.random.default_rng(5566)
X = RANDOM.standard_normal((2, 3, 4)) * 2
AWAY_FROM_ZERO = X + 0.2 * np.sign(X)
EVERY = (7, 13, 20)
BOTH = (11, 13)
# Broadcasting; a shape of ones in the middle.
PAIRS: list[list[tuple[int, ...]]] = [
    [(2, 3, 2, 3), (2, 3, 2, 3)],
    [(2, 3, 2, 3), ()],
    [(), (2, 3, 2, 3)],
    [(2, 3, 2, 3), (3,)],
    [(2, 3, 2, 3), (2, 3)],
    [(1, 2, 3), (2, 3, 1, 1)],
    [(3, 2, 3), (2, 1, 1, 1)],
    [(2, 1, 1, 3), (1, 3, 2, 1)],
    [(3, 2, 1, 4), (3, 2, 1, 1)],
    [(3, 2, 4, 4), (3, 1, 1, 4)],
]
CONDITION = RANDOM.random((4, 3, 2)) > 0.5


def quick_gelu(alpha: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x * torch.sigmoid(alpha * x)


def extremum(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def reference(*operands: torch.Tensor) -> torch.Tensor:
        result = operands[0]
        for operand in operands[1:]:
            result = function(result, operand)
        return 1.0 * result

    return reference


CASES: list[tuple[Any, ...]] = [
    ("Erf", (9, 13, 20), [X], {}, torch.erf),
    ("Sin", EVERY, [X], {}, torch.sin),
    ("Cos", EVERY, [X], {}, torch.cos),
    ("Neg", EVERY, [X], {}, torch.neg),
    ("Tanh", EVERY, [X], {}, torch.tanh),
    ("Sigmoid", EVERY, [X], {}, torch.sigmoid),
    ("Exp", EVERY, [RANDOM.uniform(-1, 1, (2, 3, 4))], {}, torch.exp),
    ("Sqrt", EVERY, [np.abs(X) + 1], {}, torch.sqrt),
    ("Log", EVERY, [np.abs(X) + 0.1], {}, torch.log),
    ("Abs", EVERY, [AWAY_FROM_ZERO], {}, torch.abs),
    ("Relu", EVERY, [AWAY_FROM_ZERO], {}, torch.relu),
    ("LeakyRelu", (7, 16, 20), [AWAY_FROM_ZERO], {}, lambda x: functional.leaky_relu(x, 0.01)),
    ("Reciprocal", (7, 12, 20), [AWAY_FROM_ZERO], {}, torch.reciprocal),
    ("Identity", EVERY, [X], {}, lambda x: 1.0 * x),
    ("Cast", (9, 13, 20), [X], {"to": 1}, lambda x: 1.0 * x),
    ("Dropout", (7, 12, 20), [X], {}, lambda x: 1.0 * x),
    ("Gelu", (20,), [X], {}, functional.gelu),
    ("com.microsoft::Gelu", (17,), [X], {}, functional.gelu),
    ("com.microsoft::FastGelu", (17,), [X], {}, lambda x: functional.gelu(x, approximate="tanh")),
    ("com.microsoft::BiasGelu", (17,), [X, (4,)], {}, lambda x, b: functional.gelu(x + b)),
    *(
        ("com.microsoft::QuickGelu", (17,), [X], {"alpha": alpha}, quick_gelu(alpha))
        for alpha in (1.7020000219345093, 1.0, -1.7020000219345093)
    ),
    *(("Add", BOTH, pair, {}, torch.add) for pair in PAIRS),
    *(("Sub", BOTH, pair, {}, torch.sub) for pair in PAIRS),
    *(("Mul", BOTH, pair, {}, torch.mul) for pair in PAIRS),
    *(("Div", BOTH, [a, np.asarray(RANDOM.uniform(0.5, 2, b))], {}, torch.div) for a, b in PAIRS),
    *(
        ("Pow", (7, 13, 15), [np.clip(AWAY_FROM_ZERO, -2, 2), np.asarray([power])], {}, lambda x, p=power: x**p)
        for power in (2, 3)
    ),
    ("Pow", (7, 13, 15), [np.abs(X) + 0.2, (1,)], {}, torch.pow),
    ("Where", (9, 16), [CONDITION, (4, 3, 2), (4, 3, 2)], {}, lambda a, b: torch.where(torch.tensor(CONDITION), a, b)),
    ("Where", (9, 16), [CONDITION, (3, 1), (4, 1, 1)], {}, lambda a, b: torch.where(torch.tensor(CONDITION), a, b)),
    ("Clip", (7,), [X], {"min": -0.5, "max": 0.75}, lambda x: torch.clamp(x, -0.5, 0.75)),
    ("Clip", (11, 13), [X, None, None], {}, lambda x: 1.0 * x),
    ("Clip", (11, 13), [X, np.asarray(-0.51), None], {}, torch.maximum),
    ("Clip", (11, 13), [X, None, np.asarray(0.51)], {}, torch.minimum),
    ("Clip", (11, 13), [X, np.asarray(-0.51), np.asarray(0.51)], {}, torch.clamp),
    *(
        (operator, (8, 13), shapes, {}, extremum(function))
        for operator, function in (("Min", torch.minimum), ("Max", torch.maximum))
        for shapes in (
            [(2, 3)],
            [(2, 3), (2, 3)],
            [(2, 3), (3,)],
            [(2, 3), (2, 3), (2, 3)],
            [(2, 3), (3,), (2, 1), ()],
        )
    ),
]  # fmt: skip


def test_gradients(case: tuple[Any, ...], check_case: Callable[..., None]) -> None:
    check_case(case)
