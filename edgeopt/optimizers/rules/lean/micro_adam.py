"""Adam over a window of sparse gradients, with error feedback: MicroAdam."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like, leading
from edgeopt.checks import at_least, fraction, require
from edgeopt.optimizers.arithmetic.averages import bias_correction
from edgeopt.optimizers.arithmetic.nibbles import pack, unpack
from edgeopt.optimizers.arithmetic.norms import finite_square
from edgeopt.optimizers.arithmetic.selection import largest, placed
from edgeopt.optimizers.base import Arrays, Updated, static
from edgeopt.optimizers.rules.descent import Decay, Descent

__all__ = ["MicroAdam"]

_LEVELS = 15  # of four bits, beside zero
_BLOCK = 2**16  # the places that sixteen bits can name
_FIRST = -(2**15)  # what int16 says for the first of them


@dataclass(frozen=True)
class MicroAdam(Descent):
    """MicroAdam (Modoranu et al., NeurIPS 2024, arXiv:2405.15593).

    The parameter is cut into blocks of `block` elements, padded with zeros. In each block::

        a = g + Q⁻¹(e)
        sₜ = the ⌈density·block⌉ elements of a of largest magnitude, kept for `window` updates
        e = Q(a - sₜ)
        m = (1 - β₁)·Σ β₁ʲ·sₜ₋ⱼ/(1 - β₁ᵗ),  v = (1 - β₂)·Σ β₂ʲ·sₜ₋ⱼ²/(1 - β₂ᵗ)    over j below `window`
        θ ← θ·(1 - lr·weight_decay) - lr·m/(√v + eps)

    Q rounds to one of sixteen levels between the smallest and the largest element of each `bucket` of a block. Slots
    `indices` (int16, the first element of a block being -2¹⁵) and `values` (s, by update modulo `window`), `error` (e,
    two levels in a byte, uint8), `error_min` and `error_max`. Squares beyond 2⁻³² of the largest finite number count as
    that number.

    Semantics of the paper and of the authors' settings, whose package runs on GPUs only; the size of a bucket is ours.
    What differs: the paper keeps `values` in bfloat16, here they have the dtype of the parameter. Whole blocks of
    float32 take 1.23 bytes an element, where Adam takes 8: `error` 0.5, its edges 0.13, `indices` 0.2, `values` 0.4.

    Raises:
        ConfigurationError: A number out of its range, a bucket that is odd, or a block that is no multiple of it.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    density: float = static(0.01)
    window: int = static(10)
    block: int = static(_BLOCK)
    bucket: int = static(64)
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("density", self.density, closed=True)
        require(self.density > 0.0, f"density must be above 0, got {self.density!r}")
        at_least("window", self.window, 1)
        require(self.bucket > 0 and self.bucket % 2 == 0, f"bucket must be even, and at least 2, got {self.bucket!r}")
        require(
            0 < self.block <= _BLOCK and self.block % self.bucket == 0,
            f"block must be a multiple of the bucket, at most {_BLOCK}, got {self.block!r} and {self.bucket!r}",
        )

    @property
    def elementwise(self) -> bool:
        """Which elements move depends on the others."""
        return False

    def _layout(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """The number of blocks, their size, and how many elements of each are chosen."""
        size = math.prod(int(dim) for dim in shape)
        block = min(self.block, math.ceil(size / self.bucket) * self.bucket)
        blocks = math.ceil(size / block)
        return blocks, block, math.ceil(self.density * min(block, size))

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return an empty window, and no error."""
        blocks, block, count = self._layout(param.shape)
        # Distinct places, with nothing in them.
        places = np.broadcast_to(np.arange(_FIRST, _FIRST + count, dtype=np.int16), (self.window, blocks, count))
        edges = np.zeros((blocks, block // self.bucket, 1), param.dtype)
        return {
            "indices": places.copy(),
            "values": np.zeros(places.shape, param.dtype),
            "error": np.zeros((blocks, block // 2), np.uint8),
            "error_min": edges,
            "error_max": edges.copy(),
        }

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        blocks, block, count = self._layout(tuple(param.shape))
        buckets = (blocks, block // self.bucket, self.bucket)
        size = math.prod(int(dim) for dim in param.shape)
        flat, padding = xp.reshape(grad, (size,)), blocks * block - size
        if padding:
            zeros = xp.broadcast_to(xp.zeros_like(leading(flat, 1)), (padding,))
            flat = xp.concat([flat, zeros], axis=0)

        low, high = state["error_min"], state["error_max"]
        levels = xp.reshape(unpack(xp, state["error"], param.dtype), buckets)
        mass = xp.reshape(flat, (blocks, block)) + xp.reshape(low + levels * ((high - low) / _LEVELS), (blocks, block))
        sizes, chosen = largest(xp, xp.abs(mass), count)
        values = sizes * xp.sign(xp.take_along_axis(mass, chosen, axis=1))
        rest = xp.reshape(mass - placed(xp, mass, chosen, values), buckets)
        low, high = xp.min(rest, axis=2, keepdims=True), xp.max(rest, axis=2, keepdims=True)
        unit = (high - low) / _LEVELS
        unit = xp.where(unit > 0, unit, xp.ones_like(unit))
        error = xp.maximum(xp.minimum(xp.floor((rest - low) / unit + 0.5), xp.full_like(rest, _LEVELS)), 0.0 * rest)

        now = xp.astype(step, xp.float64)
        place = now - xp.floor(now / self.window) * self.window
        here = xp.reshape(xp.asarray(np.arange(self.window, dtype=np.float64)), (self.window, 1, 1)) == place
        known = xp.astype(state["indices"], chosen.dtype) - _FIRST
        indices = xp.where(here, xp.expand_dims(chosen, axis=0), known)
        window = xp.where(here, xp.expand_dims(values, axis=0), state["values"])

        mean, square = xp.zeros_like(mass), xp.zeros_like(mass)
        for slot in range(self.window):
            age = now - slot - xp.floor((now - slot) / self.window) * self.window
            at = xp.squeeze(xp.take(indices, xp.asarray([slot]), axis=0), axis=0)
            kept = xp.squeeze(xp.take(window, xp.asarray([slot]), axis=0), axis=0)
            first = cast_like(xp, (1.0 - hyper["beta1"]) * hyper["beta1"] ** age, param)
            second = cast_like(xp, (1.0 - hyper["beta2"]) * hyper["beta2"] ** age, param)
            mean = mean + placed(xp, mass, at, first * kept)
            square = square + placed(xp, mass, at, second * finite_square(xp, kept))
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        rate = cast_like(xp, hyper["lr"] * root_bias2 / bias_correction(xp, hyper["beta1"], step), param)
        move = mean / (xp.sqrt(square) + cast_like(xp, hyper["eps"] * root_bias2, param))
        whole = xp.reshape(leading(xp.reshape(move, (blocks * block,)), size), tuple(param.shape))
        slots = {
            "indices": xp.astype(indices + _FIRST, xp.int16),
            "values": window,
            "error": pack(xp, xp.reshape(error, (blocks, block))),
        }
        return rate * whole, {**slots, "error_min": low, "error_max": high}
