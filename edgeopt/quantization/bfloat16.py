"""The upper half of a float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes

from edgeopt.array_types import Array, Namespace
from edgeopt.quantization.base import Format, Parts

__all__ = ["BFloat16"]


@dataclass(frozen=True)
class BFloat16(Format):
    """bfloat16, rounded to the nearest or at random between the two neighbours.

    Random rounding is right in the mean, so that steps below half a unit in the last place still add up (Gupta et al.,
    ICML 2015, arXiv:1502.02551; torchao's ``bf16_stochastic_round``). The one part is `values`.

    Args:
        stochastic: Whether to round at random.
    """

    stochastic: bool = False

    @property
    def draws(self) -> bool:
        """Whether `encode` needs random numbers."""
        return self.stochastic

    def encode(self, xp: Namespace, array: Array, uniform: Array | None = None) -> dict[str, Array]:
        """The rounded values; see `Format.encode`."""
        if self.stochastic and uniform is not None:
            array = _at_random(xp, array, uniform)
        return {"values": _rounded(xp, array)}

    def decode(self, xp: Namespace, parts: Parts, shape: tuple[int, ...], dtype: Any) -> Array:
        """The values; see `Format.decode`."""
        return xp.astype(parts["values"], dtype)


def _rounded(xp: Namespace, array: Array) -> Array:
    return xp.astype(array, getattr(xp, "bfloat16", ml_dtypes.bfloat16))


def _at_random(xp: Namespace, array: Array, uniform: Array) -> Array:
    """One of the two neighbours in bfloat16, the nearer one the more often; what is one already stays."""

    def near(value: Array) -> Array:
        return xp.astype(_rounded(xp, value), array.dtype)

    # A step of 2⁻⁸ down is half a unit or more, one of 1.5·2⁻⁸ up less than one and a half: both round to a neighbour.
    size = xp.abs(array)
    nearest = near(size)
    lower = xp.where(nearest > size, near(nearest * (1.0 - 2.0**-8)), nearest)
    upper = near(lower * (1.0 + 1.5 * 2.0**-8))
    gap = upper - lower
    share = (size - lower) / xp.where(gap > 0.0, gap, xp.ones_like(gap))
    return xp.sign(array) * xp.where(uniform < share, upper, lower)
