"""Adam with one second moment for a block of elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import require
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent

__all__ = ["AdamMini"]

Block: TypeAlias = Literal["row", "tensor"]


@dataclass(frozen=True)
class AdamMini(Descent):
    """Adam-mini (Zhang et al., ICLR 2025, arXiv:2406.16793).

    As `AdamW`, except that v is one number for each block, and g² its mean over the block::

        m ← β₁·m + (1 - β₁)·g
        v ← β₂·v + (1 - β₂)·mean(g²)
        θ ← θ - lr/(1 - β₁ᵗ) · m / (√v/√(1 - β₂ᵗ) + eps)

    `block` is "row" (each slice along the first dimension; a vector is one block) or "tensor". Slots `exp_avg` (m) and
    `exp_avg_sq` (v, with every dimension but the first of size one, or all of them).

    Semantics of the authors' package adam-mini. That one derives blocks from the names of a transformer's parameters;
    here they are a choice of the caller.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    block: Block = "row"
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        blocks = get_args(Block)
        require(self.block in blocks, f"block must be one of {', '.join(blocks)}, got {self.block!r}")

    @property
    def elementwise(self) -> bool:
        """The second moment is shared by a block."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros: one for each element, or one for each block."""
        blocks = np.max(param, axis=self._axes(param.ndim), keepdims=True)
        return {**zeros(param, "exp_avg"), **zeros(blocks, "exp_avg_sq")}

    def _axes(self, ndim: int) -> tuple[int, ...]:
        """The dimensions that a block spans."""
        return tuple(range(1 if self.block == "row" and ndim > 1 else 0, ndim))

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; the factors of v are moved to the numbers of the blocks."""
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        rate = hyper["lr"] * root_bias2 / bias_correction(xp, hyper["beta1"], step)
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        square = xp.mean(grad * grad, axis=self._axes(param.ndim), keepdims=True)
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], square)
        denominator = xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"] * root_bias2, param)
        return cast_like(xp, rate, param) / denominator * exp_avg, {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
