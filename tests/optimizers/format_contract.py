"""What rules keep with storage formats of their state: for a sample in tests/optimizers, for all in tests/full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np

from edgeopt.optimizers import OPTIMIZERS, Optimizer, QuantizedState, initial_state
from edgeopt.quantization import FORMATS

__all__ = ["PAIRS_OF_ALL", "SAMPLE", "check"]

SHAPE, STEPS = (12, 16), 8

#: Every rule with every format.
PAIRS_OF_ALL = [(name, state) for name in sorted(OPTIMIZERS) for state in FORMATS]

#: Every rule with a format, and every format with several rules.
SAMPLE = [(name, [*FORMATS][place % len(FORMATS)]) for place, name in enumerate(sorted(OPTIMIZERS))]

Train = Callable[..., tuple[Any, dict[str, Any]]]


def check(name: str, state: str, train: Train, train_onnx: Callable[..., Any]) -> None:
    """The contract.

    State keeps its shapes and dtypes and stays finite; steps under ONNX Runtime are those under numpy; and they lead
    where state in float32 does, but for what the format rounds away.
    """
    rule = quantized(name, state)
    rng = np.random.default_rng(7)
    start = rng.normal(size=SHAPE).astype(np.float32)
    # Not zero in the mean, so that rounding does not decide the direction of small steps.
    grads = (rng.normal(size=(STEPS, *SHAPE)) + 1.0).astype(np.float32)
    param, kept = train(rule, numpy_namespace, start, lambda _, i: grads[i], STEPS)
    exact, _ = train(plain(name), numpy_namespace, start, lambda _, i: grads[i], STEPS)
    assert np.isfinite(param).all()
    for slot, first in initial_state(rule, start).items():
        assert (kept[slot].shape, kept[slot].dtype) == (first.shape, first.dtype), slot
        assert np.isfinite(np.asarray(kept[slot], np.float64)).all(), slot
    if not state.startswith("bf16"):  # which does not come into ONNX Runtime from numpy; bundles are tested with it
        assert_near(train_onnx(rule, start, grads), param, start)
    allowed = 0.5 if state in ("int4", "nf4", "int8_linear", "factored") else 0.15
    assert np.sqrt(np.mean((param - exact) ** 2)) <= allowed * np.sqrt(np.mean((exact - start) ** 2))


def assert_near(one: Any, other: Any, start: Any) -> None:
    """Equal up to the last digits, but for what a code that is rounded the other way makes of it."""
    moved = np.abs(other - start).max()
    apart = np.abs(one - other)
    assert np.quantile(apart, 0.98) <= 1e-4 * moved
    assert apart.max() <= 0.1 * moved


def plain(name: str) -> Optimizer:
    """A rule with everything in its state that it may have."""
    known = {field.name for field in fields(OPTIMIZERS[name])}
    # With its own first distance of 1e-6 D-Adaptation moves by nothing but rounding at first.
    wanted: dict[str, Any] = {"momentum": 0.5, "amsgrad": True, "centered": True, "lr": 0.01, "d0": 0.01}
    return OPTIMIZERS[name](**{key: value for key, value in wanted.items() if key in known})


def quantized(name: str, state: str) -> Optimizer:
    """The same with a format, whatever the size of its parameter."""
    return QuantizedState(plain(name), FORMATS[state]._replace(smallest=1))
