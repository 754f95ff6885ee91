"""Elementwise operators and progressions that torch's own translations compute in float32, or do not have."""

from __future__ import annotations

import math
from typing import Any

import torch

from edgeopt_exporters.pytorch.translations.rewriting import Rewrite

__all__ = ["REWRITES"]


def _celu(self: torch.Tensor, alpha: float = 1.0) -> Any:
    """`aten::celu`, of other types than float32."""
    if self.dtype == torch.float32:
        return NotImplemented
    return torch.where(self > 0, self, ((self.clamp(max=0.0) / alpha).exp() - 1.0) * alpha)


def _fmax(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`aten::fmax`: the maximum, of a number and NaN the number."""
    return torch.where(self.isnan(), other, torch.where(other.isnan(), self, torch.maximum(self, other)))


def _fmin(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`aten::fmin`."""
    return torch.where(self.isnan(), other, torch.where(other.isnan(), self, torch.minimum(self, other)))


def _arange(
    start: Any, end: Any, step: Any = 1, dtype: torch.dtype | None = None, device: Any = None, pin_memory: Any = None
) -> Any:
    """`aten::arange` of floating-point numbers: start + i step, computed in doubles."""
    numbers = (start, end, step)
    if any(not isinstance(number, (int, float)) for number in numbers):
        return NotImplemented
    dtype = dtype or (torch.get_default_dtype() if any(isinstance(number, float) for number in numbers) else None)
    if dtype is None or not dtype.is_floating_point:
        return NotImplemented
    count = max(0, math.ceil((end - start) / step))
    return (torch.arange(count).to(torch.float64) * step + start).to(dtype)


REWRITES: dict[Any, Rewrite] = {
    torch.ops.aten.celu.default: _celu,
    torch.ops.aten.fmax.default: _fmax,
    torch.ops.aten.fmin.default: _fmin,
    torch.ops.aten.arange.start_step: _arange,
    torch.ops.aten.arange.start: _arange,
}
