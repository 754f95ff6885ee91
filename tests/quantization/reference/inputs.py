"""What the goldens of other packages are made from, and compared with."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["SAMPLE", "SHAPE", "STEPS", "array", "gradients", "start"]

Array = np.ndarray[Any, Any]

SHAPE = (16, 256)

#: Of a state all is kept after the first of these, and of the parameter every eighth element after each.
STEPS = 10, 11, 200
SAMPLE = 8


def array(kind: str) -> Array:
    """An array to quantize: `normal`, or `wide`, over five decades."""
    rng = np.random.default_rng(3)
    sizes = 10.0 ** rng.uniform(-5, 0, SHAPE) if kind == "wide" else 1.0
    return (rng.normal(size=SHAPE) * sizes).astype(np.float32)


def start() -> Array:
    """The first value of the parameter."""
    return np.random.default_rng(4).normal(size=SHAPE).astype(np.float32)


def gradients() -> Array:
    """A gradient for each step, over a decade from column to column, and not zero in the mean."""
    rng = np.random.default_rng(5)
    sizes = 10.0 ** rng.uniform(-1, 0, (1, 1, SHAPE[1]))
    return ((rng.normal(size=(max(STEPS), *SHAPE)) + 0.1) * sizes).astype(np.float32)
