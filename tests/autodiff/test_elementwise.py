from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edgeopt import tracing as xp
from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import elementwise
from edgeopt.tracing import op

X = [(3, 4)]
# The broadcast shapes of ONNX Runtime's own training tests.
PAIRS: list[list[tuple[int, ...]]] = [
    [(2, 3, 2, 3), (2, 3, 2, 3)],
    [(2, 3, 2, 3), ()],
    [(), (2, 3, 2, 3)],
    [(2, 3, 2, 3), (3,)],
    [(2, 3, 2, 3), (2, 3)],
    [(1, 2, 3), (2, 3, 1, 1)],
    [(3, 2, 3), (2, 1, 1, 1)],
    [(2, 1, 1, 3), (1, 3, 2, 1)],
]


def positive(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Of a number above zero, kept inside the domain of logarithms and roots."""
    return lambda x: function(x * x + 0.5)


KEEP = np.random.default_rng(0).random((2, 3, 4)) > 0.5


def masked(a: Any, b: Any) -> Any:
    return op.Where(a.tracer.constant(KEEP), a, b)


def masked_in_torch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.tensor(KEEP), a, b)


def clipped(x: Any, low: Any, high: Any) -> Any:
    return op.Clip(x, low - 1.0, high + 1.0)


def clipped_in_torch(x: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    return torch.clamp(x, low - 1.0, high + 1.0)


ROWS: list[tuple[Any, ...]] = [
    ("Exp", torch.exp, X, {}),
    ("Tanh", torch.tanh, X, {}),
    ("Sigmoid", torch.sigmoid, X, {}),
    ("Sqrt", positive(torch.sqrt), X, positive(lambda x: op.Sqrt(x))),
    ("Reciprocal", positive(torch.reciprocal), X, positive(lambda x: op.Reciprocal(x))),
    ("Log", positive(torch.log), X, positive(lambda x: op.Log(x))),
    ("Erf", torch.erf, X, {}),
    ("Sin", torch.sin, X, {}),
    ("Cos", torch.cos, X, {}),
    ("Tan", lambda x: torch.tan(x / 2), X, lambda x: op.Tan(x * 0.5)),
    ("Asin", lambda x: torch.asin(x * 0.4), X, lambda x: op.Asin(x * 0.4)),
    ("Acos", lambda x: torch.acos(x * 0.4), X, lambda x: op.Acos(x * 0.4)),
    ("Atan", torch.atan, X, {}),
    ("Sinh", torch.sinh, X, {}),
    ("Cosh", torch.cosh, X, {}),
    ("Asinh", torch.asinh, X, {}),
    ("Acosh", lambda x: torch.acosh(x + 3.5), X, lambda x: op.Acosh(x + 3.5)),
    ("Atanh", lambda x: torch.atanh(x * 0.4), X, lambda x: op.Atanh(x * 0.4)),
    ("Abs", torch.abs, X, {}),
    ("Neg", torch.neg, X, {}),
    ("Identity", lambda x: 1.0 * x, X, {}),
    ("Cast", lambda x: 1.0 * x, X, lambda x: xp.astype(xp.astype(x, np.float64), x.dtype) if x.dtype.itemsize == 4
     else xp.astype(x, np.float64)),
    *(("Add", torch.add, pair, {}) for pair in PAIRS),
    *(("Sub", torch.sub, pair, {}) for pair in PAIRS),
    *(("Mul", torch.mul, pair, {}) for pair in PAIRS),
    *(("Div", lambda a, b: a / (b * b + 0.5), pair, lambda a, b: a / (b * b + 0.5)) for pair in PAIRS),
    ("Sum", lambda a, b, c: a + b + c, [(2, 3), (3,), (2, 1)], {}),
    ("Sum", lambda a: 1.0 * a, X, {}),
    ("Mean", lambda a, b, c: (a + b + c) / 3, [(2, 3), (3,), (2, 1)], {}),
    ("Mod", lambda a, b: torch.fmod(a, b + 2.5), [(3, 4), (4,)], lambda a, b: op.Mod(a, b + 2.5, fmod=1)),
    *(("Pow", lambda x, p=power: x**p, X, lambda x, p=power: x**p) for power in (2.0, 3.0)),
    ("Pow", lambda a, b: (a * a + 0.5) ** b, [(2, 3, 4), (4,)], lambda a, b: (a * a + 0.5) ** b),
    ("Max", torch.maximum, [(2, 3, 4), (4,)], {}),
    ("Max", lambda a, b, c: torch.maximum(torch.maximum(a, b), c), [(2, 3), (3,), (2, 1)], {}),
    ("Max", lambda a: 1.0 * a, X, {}),
    ("Min", torch.minimum, [(2, 3, 4), (3, 1)], {}),
    ("Where", masked_in_torch, [(2, 3, 4), (2, 3, 4)], masked),
    ("Where", masked_in_torch, [(1, 3, 1), (2, 1, 4)], masked),
    ("Where", masked_in_torch, [(), (4,)], masked),
    ("Clip", lambda x: torch.clamp(x, -1.0, 0.5), X, lambda x: op.Clip(x, -1.0, 0.5)),
    ("Clip", lambda x: torch.clamp(x, min=-1.0), X, lambda x: op.Clip(x, -1.0)),
    ("Clip", lambda x: torch.clamp(x, max=0.5), X, lambda x: op.Clip(x, None, 0.5)),
    ("Clip", lambda x: 1.0 * x, X, {}),
    ("Clip", clipped_in_torch, [*X, (), ()], clipped),
    # A lower limit above the upper one.
    ("Clip", lambda x, a, b: torch.clamp(x, a + 3, b - 3), [*X, (), ()], lambda x, a, b: op.Clip(x, a + 3.0, b - 3.0)),
    ("Clip", lambda x: torch.clamp(x, 1.0, -1.0), X, lambda x: op.Clip(x, 1.0, -1.0)),
]  # fmt: skip


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == elementwise.__name__}
    assert rules == {row[0] for row in ROWS}


NAMED: list[list[tuple[int | str, ...]]] = [
    [("batch", 2, "sequence"), ("batch", 1, "sequence")],
    [("batch", 2, "sequence"), ("sequence",)],
    [("batch", 2, "sequence"), ("other", 1, 1)],
    [("batch", 2, "sequence"), ()],
]


@pytest.mark.parametrize("dims", NAMED, ids=str)
@pytest.mark.parametrize("other_size", [1, None])
def test_broadcasting_of_named_dimensions(
    dims: list[tuple[int | str, ...]], other_size: int | None, check_row_with_names: Callable[..., None]
) -> None:
    """A dimension called `other` may be 1 or the batch size: only the run tells."""
    for size in (2, 3):
        sizes = {"batch": size, "sequence": 5, "other": other_size or size}
        shapes = [tuple(sizes[dim] if isinstance(dim, str) else dim for dim in shape) for shape in dims]
        check_row_with_names(("Mul", torch.mul, shapes, {}), dims, [size])
