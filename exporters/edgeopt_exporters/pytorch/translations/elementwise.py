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


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _selu(self: torch.Tensor) -> Any:
    """`aten::selu`, of other types than float32: ONNX's constants are rounded to it."""
    if self.dtype == torch.float32:
        return NotImplemented
    below = (self.clamp(max=0.0).exp() - 1.0) * (_SELU_ALPHA * _SELU_SCALE)
    return torch.where(self > 0, self * _SELU_SCALE, below)


def _threshold(self: torch.Tensor, threshold: float, value: float) -> torch.Tensor:
    """`aten::threshold`."""
    return torch.where(self > threshold, self, value)


def _hardtanh(self: torch.Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """`aten::hardtanh` of doubles, without gradient at its ends."""
    if self.dtype != torch.float64:
        return NotImplemented
    return torch.where(self <= min_val, min_val, torch.where(self >= max_val, max_val, self))


def _hardsigmoid(self: torch.Tensor) -> Any:
    """`aten::hardsigmoid`, of other types than float32: ONNX's slope is rounded to it."""
    if self.dtype == torch.float32:
        return NotImplemented
    return torch.where(self <= -3.0, 0.0, torch.where(self >= 3.0, 1.0, (self + 3.0) / 6.0))


def _copysign(self: torch.Tensor, other: Any) -> torch.Tensor:
    """`aten::copysign`: minus zero is negative."""
    size = self.abs() if self.is_floating_point() else self.abs().to(torch.get_default_dtype())
    if not isinstance(other, torch.Tensor):
        return -size if math.copysign(1.0, other) < 0 else size
    negative = (other < 0) | ((other == 0) & (torch.ones_like(other) / other < 0))
    return torch.where(negative, -size, size)


def _hypot(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`aten::hypot`, scaled by the larger one so that no square overflows."""
    a, b = self.abs(), other.abs()
    scale = torch.maximum(a, b).detach()
    scale = torch.where((scale > 0) & scale.isfinite(), scale, torch.ones_like(scale))
    size = ((a / scale).square() + (b / scale).square()).sqrt() * scale
    return torch.where(a.isinf() | b.isinf(), torch.inf, size)


# So many terms of the continued fraction are exact to the last digits from here on.
_TAIL, _TERMS = -3.0, 60


def _log_ndtr(self: torch.Tensor) -> torch.Tensor:
    """`aten::special_log_ndtr`: the logarithm of the normal distribution, also where that is zero in numbers.

    In the tail by the continued fraction of Mills' ratio (Laplace): φ(x) / Φ(-x) = x + 1/(x + 2/(x + 3/(x + …))).
    """
    x = (-self).clamp(min=-_TAIL)
    fraction = x
    for term in range(_TERMS, 0, -1):
        fraction = x + term / fraction
    tail = -0.5 * x * x - 0.5 * math.log(2.0 * math.pi) - fraction.log()
    body = (0.5 * torch.erfc(self.clamp(min=_TAIL) * -math.sqrt(0.5))).log()
    return torch.where(self < _TAIL, tail, body)


def _softplus(self: torch.Tensor, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """`aten::softplus`: from the threshold on it is the identity."""
    if self.dtype == torch.float32 and (beta, threshold) == (1, 20):
        return NotImplemented
    scaled = self if beta == 1 else self * beta
    below = torch.nn.functional.softplus(scaled.clamp(max=threshold))
    return torch.where(scaled > threshold, self, below if beta == 1 else below / beta)


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
    torch.ops.aten.selu.default: _selu,
    torch.ops.aten.special_log_ndtr.default: _log_ndtr,
    torch.ops.aten.hardsigmoid.default: _hardsigmoid,
    torch.ops.aten.copysign.Tensor: _copysign,
    torch.ops.aten.copysign.Scalar: _copysign,
    torch.ops.aten.hypot.default: _hypot,
    torch.ops.aten.hardtanh.default: _hardtanh,
    torch.ops.aten.softplus.default: _softplus,
    torch.ops.aten.threshold.default: _threshold,
    torch.ops.aten.fmax.default: _fmax,
    torch.ops.aten.fmin.default: _fmin,
    torch.ops.aten.arange.start_step: _arange,
    torch.ops.aten.arange.start: _arange,
}
