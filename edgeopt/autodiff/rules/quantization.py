"""Quantization by the straight-through rule, scales included.

Between them, QuantizeLinear and DequantizeLinear give each x the cotangent of its dequantized value where it is inside
the range of the integers, and none where it was cut off. For the scale, the pair has the gradient of
`torch.fake_quantize` with a learnable scale: round(x / s) - x / s inside, the end of the range minus the zero point
outside. Zero points are integers, and have none. Source: Esser et al., "Learned step size quantization", equation 3.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.arrays import reshape_like
from edgeopt.autodiff.registry import rule
from edgeopt.autodiff.rules.elementwise import indicator
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def _is_blocked(n: Site) -> str | None:
    return "its scales are those of blocks" if n.attr("block_size", 0) else None


def _per_axis(n: Site, vector: Array) -> Array:
    """A scale for each slice along `axis`, to meet the tensor."""
    if vector.ndim == 0 or vector.shape == (1,):
        return vector
    axis = n.attr("axis", 1) % n.x.ndim
    return op.Unsqueeze(vector, [i for i in range(n.x.ndim) if i != axis]) if n.x.ndim > 1 else vector


def _sum_to_scale(n: Site, g: Array) -> Array:
    scale = n.input(1)
    if scale.ndim == 0 or scale.shape == (1,):
        return reshape_like(op.ReduceSum(g, keepdims=0), scale)
    axis = n.attr("axis", 1) % n.x.ndim
    return op.ReduceSum(g, [i for i in range(n.x.ndim) if i != axis], keepdims=0).with_shape(scale.shape)


def _offset(n: Site, dtype: np.dtype[np.generic]) -> Array | None:
    """The zero point in floating point."""
    return _per_axis(n, xp.astype(n.input(2), dtype)) if n.has(2) else None


def _range(dtype: np.dtype[np.generic]) -> tuple[float, float]:
    """The smallest and the largest number of a quantized type."""
    limits = ml_dtypes.iinfo if dtype.kind in "iu" else ml_dtypes.finfo
    info = limits(dtype)
    return float(info.min), float(info.max)


@rule("DequantizeLinear", limits=_is_blocked)
def dequantize_linear(n: Site, g: Array) -> tuple[Array | None, Array | None]:
    """(q - zero point) scale."""
    to_q = g * _per_axis(n, n.input(1)) if n.needs[0] else None
    if not n.needs[1]:
        return to_q, None
    number, offset = xp.astype(n.x, g.dtype), _offset(n, g.dtype)
    return to_q, _sum_to_scale(n, g * (number if offset is None else number - offset))


@rule("QuantizeLinear", limits=_is_blocked)
def quantize_linear(n: Site, g: Array) -> tuple[Array, Array | None]:
    """x / scale, rounded, moved by the zero point, and cut at the ends of the type's range."""
    scale = _per_axis(n, xp.astype(n.input(1), n.x.dtype))
    scaled = n.x / scale
    low, high = _range(n.y.dtype)
    offset = _offset(n, n.x.dtype)
    # Cut off is what the range would have cut off after rounding.
    number = op.Round(scaled) if n.y.dtype.kind in "iu" else scaled
    number = number if offset is None else number + offset
    to_x = g * (indicator((number >= low) & (number <= high), g) / scale)
    if not n.needs[1]:
        return to_x, None
    return to_x, -xp.astype(_sum_to_scale(n, to_x * scaled), n.input(1).dtype)
