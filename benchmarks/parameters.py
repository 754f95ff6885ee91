"""Sets of parameters whose update alone is measured, and what is the same for all contenders."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["SETS", "gradients", "parameters"]

# Expansion, channels and repeats of the blocks of MobileNetV2 (Sandler et al., CVPR 2018, table 2), for ten classes.
_BLOCKS = ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1))


def _convolution(outputs: int, inputs: int, size: int) -> list[tuple[int, ...]]:
    """A kernel, and the scale and shift of the normalisation behind it."""
    return [(outputs, inputs, size, size), (outputs,), (outputs,)]


def _mobilenet_v2() -> list[tuple[int, ...]]:
    shapes = _convolution(32, 3, 3)
    width = 32
    for expansion, channels, repeats in _BLOCKS:
        for _ in range(repeats):
            inner = width * expansion
            if expansion > 1:
                shapes += _convolution(inner, width, 1)
            shapes += [*_convolution(inner, 1, 3), *_convolution(channels, inner, 1)]
            width = channels
    return [*shapes, *_convolution(1280, width, 1), (10, 1280), (10,)]


SETS: dict[str, list[tuple[int, ...]]] = {"mobilenet_v2": _mobilenet_v2(), "300_tiny": [(256,)] * 300}


def parameters(name: str) -> dict[str, NDArray[np.float32]]:
    """First values by name."""
    random = np.random.default_rng(0)
    return {
        f"p{place}": (random.normal(size=shape) / math.sqrt(math.prod(shape[1:]) or 1)).astype(np.float32)
        for place, shape in enumerate(SETS[name])
    }


def gradients(name: str) -> dict[str, NDArray[np.float32]]:
    """The gradient of each parameter, the same at every step."""
    random = np.random.default_rng(1)
    return {key: random.normal(size=value.shape).astype(np.float32) for key, value in parameters(name).items()}
