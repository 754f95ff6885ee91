"""Blockwise quantization to equal steps of a root."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.quantization.base import Format, Parts
from edgeopt.quantization.blocks import normalised, scaled, to_blocks, whole

__all__ = ["Companded"]


@dataclass(frozen=True)
class Companded(Format):
    """Eight bits in equal steps of a root, which spends them on small values and costs few passes::

        a_b = max |x_b|      s = (|x| / a_b)^(1/r)
        code = round(127·s)·sgn x                    x ≈ a_b·sgn code·|code / 127|^r         with both signs
        code = max(round(256·s) - 1, 0)              x ≈ a_b·((code + 1) / 256)^r            without negative values

    r = 1 is linear, as QuantizeLinear, and knows nothing below half a percent of the largest value of a block; r = 2
    and 4 reach down to 2e-5 and 2e-10 of it, with relative errors of 0.8 % at the top. Without negative values there is
    no zero either, but in a block that has nothing else: what is divided by must not vanish (arXiv:2309.01507). The
    parts are `codes` (int8, or uint8) in the array's shape, and `absmax`, one number of the array's type for each
    block.

    Args:
        signed: Whether there are negative values.
        root: r, a power of 2.
        block: How many elements share a scale.

    Raises:
        ConfigurationError: The root is no power of 2 up to 8, or a block is empty.
    """

    signed: bool
    root: int
    block: int = 256

    def __post_init__(self) -> None:
        require(self.root in (1, 2, 4, 8), f"root must be 1, 2, 4 or 8, got {self.root!r}")
        require(self.block > 0, f"block must be above 0, got {self.block!r}")

    def encode(self, xp: Namespace, array: Array, uniform: Array | None = None) -> dict[str, Array]:
        """The codes and the largest magnitude of each block; see `Format.encode`."""
        rows, absmax = normalised(xp, to_blocks(xp, array, self.block))
        size = xp.abs(rows)
        for _ in range(self._doublings):
            size = xp.sqrt(size)
        if self.signed:
            codes = xp.astype(xp.sign(rows) * xp.floor(size * 127.0 + 0.5), xp.int8)
        else:
            levels = xp.floor(size * 256.0 + 0.5) - 1.0
            codes = xp.astype(xp.where(levels > 0.0, levels, xp.zeros_like(levels)), xp.uint8)
        return {"codes": whole(xp, codes, tuple(int(dim) for dim in array.shape)), "absmax": absmax}

    def decode(self, xp: Namespace, parts: Parts, shape: tuple[int, ...], dtype: Any) -> Array:
        """The powers, scaled; see `Format.decode`."""
        codes = to_blocks(xp, xp.astype(parts["codes"], dtype), self.block)
        rows = codes * (1.0 / 127.0) if self.signed else (codes + 1.0) * (1.0 / 256.0)
        for _ in range(self._doublings):
            # A square that keeps the sign.
            rows = rows * (xp.abs(rows) if self.signed else rows)
        return whole(xp, scaled(xp, rows, parts["absmax"]), shape)

    @property
    def _doublings(self) -> int:
        """How many square roots make the root."""
        return int(math.log2(self.root))
