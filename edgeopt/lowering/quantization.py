"""Quantization of float64 tensors, for which ONNX has no operator: only a model made float64 holds it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.lowering.registry import is_double, lowering
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def _has_double_scale(n: Site) -> bool:
    return n.has(1) and n.input(1).value.dtype == ir.DataType.DOUBLE


def _along_axis(n: Site, vector: Array) -> Array:
    """A number for each slice along `axis`, to meet the tensor; there is one number otherwise."""
    if vector.ndim == 0 or vector.shape == (1,) or n.x.ndim < 2:
        return vector
    axis = n.attr("axis", 1) % n.x.ndim
    return op.Unsqueeze(vector, [i for i in range(n.x.ndim) if i != axis])


@lowering("DequantizeLinear", when=_has_double_scale)
def dequantize_linear(n: Site) -> Array:
    """(q - zero point) scale."""
    number = xp.astype(n.x, np.float64)
    if n.has(2):
        number = number - _along_axis(n, xp.astype(n.input(2), np.float64))
    return number * _along_axis(n, n.input(1))


@lowering("QuantizeLinear", when=is_double)
def quantize_linear(n: Site) -> Array:
    """x / scale, rounded to even where the type holds integers, moved, and cut at the ends of the type's range."""
    dtype = n.y.dtype
    number = n.x / _along_axis(n, xp.astype(n.input(1), np.float64))
    if dtype.kind in "iu":
        number = op.Round(number)
    if n.has(2):
        number = number + _along_axis(n, xp.astype(n.input(2), np.float64))
    info = (ml_dtypes.iinfo if dtype.kind in "iu" else ml_dtypes.finfo)(dtype)
    return xp.astype(op.Clip(number, float(info.min), float(info.max)), dtype)
