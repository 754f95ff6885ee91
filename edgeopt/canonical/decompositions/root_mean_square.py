"""Normalisation by the root mean square. Source: Zhang and Sennrich, "Root mean square layer normalization"."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site

__all__ = ["by_root_mean_square"]


def by_root_mean_square(x: Array, scale: Array, axis: int, epsilon: float) -> tuple[Array, Array]:
    """x / √(mean x² + epsilon) over the axes from `axis` on, scaled; and the inverse root.

    Half precision is computed in single, as ONNX and ONNX Runtime do.
    """
    exact = xp.astype(x, np.float32) if x.dtype.itemsize < 4 else x
    axes = list(range(axis % x.ndim, x.ndim))
    inverse = 1.0 / xp.sqrt(op.ReduceMean(exact * exact, axes, keepdims=1) + epsilon)
    normed = xp.astype(exact * inverse, x.dtype)
    return xp.astype(normed, scale.dtype) * scale, inverse


@decomposition("RMSNormalization", "SimplifiedLayerNormalization", "com.microsoft::SimplifiedLayerNormalization")
def rms_normalization(n: Site) -> tuple[Array, Array]:
    """ONNX Runtime keeps the second operator in the standard domain; its further output is the inverse root."""
    return by_root_mean_square(n.x, n.input(1), n.attr("axis", -1), n.number("epsilon", 1e-5))


@decomposition("com.microsoft::SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(n: Site) -> tuple[Array, Array, Array, Array]:
    """Of a sum, which is the last output; ONNX Runtime's CPU provider leaves mean and inverse root at zero."""
    total = n.x + n.input(1)
    if n.has(3):
        total = total + n.input(3)
    y, inverse = by_root_mean_square(total, n.input(2), -1, n.number("epsilon", 1e-12))
    return y, op.ReduceMean(total, [-1], keepdims=1), inverse, total
