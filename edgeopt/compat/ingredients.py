"""What rules need beside the gradient, made on the host: random numbers that depend on seed and place alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import Noise, Normal, Rademacher, Uniform

__all__ = ["draw"]


def draw(noise: Noise, shape: tuple[int, ...], seed: int, *place: int) -> np.ndarray[Any, Any]:
    """Random numbers in float64.

    Args:
        noise: Their distribution, and their shape if it is not that of the parameter.
        shape: Of the parameter.
        seed: Of the whole run.
        place: Numbers that say which update, parameter and ingredient this is; equal places give equal numbers.

    Raises:
        ConfigurationError: The distribution is unknown.
    """
    rng = np.random.default_rng([seed, *place])
    size = noise.array_shape(shape)
    if isinstance(noise, Normal):
        return rng.standard_normal(size)
    if isinstance(noise, Uniform):
        return rng.random(size)
    if isinstance(noise, Rademacher):
        return rng.integers(0, 2, size) * 2.0 - 1.0
    raise ConfigurationError(f"{type(noise).__name__} is no kind of noise that is known.")
