"""Fake quantization, which torch captures without its gradient or not at all.

x goes to the nearest multiple of the scale that the integers reach. The gradient passes where x was inside their range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from edgeopt_exporters.pytorch.translations.surrogate import with_gradient_of

__all__ = ["FUNCTIONS"]


def _quantized(
    x: torch.Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The integers before the cut, and the dequantized values behind it.

    torch holds the scale in float32, and multiplies by its reciprocal; it dequantizes whole tensors in float32 too,
    whatever the type of x, and channels in the type of x.
    """
    single: Any = scale.detach().to(torch.float32) if isinstance(scale, torch.Tensor) else np.float32(scale)
    inverse = 1 / single
    if isinstance(scale, torch.Tensor):
        inverse = inverse.to(x.dtype)
    else:
        single, inverse = float(single), float(np.float32(inverse))
    integers = torch.round(x.detach() * inverse) + zero_point
    steps = integers.clamp(quant_min, quant_max) - zero_point
    if isinstance(scale, torch.Tensor) and scale.ndim > 0:
        return integers, steps * single.to(x.dtype)
    return integers, (steps.to(torch.float32) * single).to(x.dtype)


def _per_tensor(input: torch.Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> torch.Tensor:  # noqa: A002  # torch's name
    """`torch.fake_quantize_per_tensor_affine`, its scale a number or a tensor."""
    if isinstance(zero_point, torch.Tensor):
        zero_point = zero_point.detach().to(input.dtype)
    integers, values = _quantized(input, scale, zero_point, quant_min, quant_max)
    inside = ((integers >= quant_min) & (integers <= quant_max)).to(input.dtype)
    return with_gradient_of(values, input * inside)


def _per_channel(
    input: torch.Tensor,  # noqa: A002  # torch's name
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> torch.Tensor:
    """`torch.fake_quantize_per_channel_affine`."""
    shape = [1] * input.ndim
    shape[axis] = -1
    return _per_tensor(input, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.fake_quantize_per_tensor_affine: _per_tensor,
    torch.fake_quantize_per_channel_affine: _per_channel,
}
