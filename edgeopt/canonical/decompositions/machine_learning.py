"""Operators of ai.onnx.ml that are arithmetic on tensors."""

from __future__ import annotations

import numpy as np

from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array
from edgeopt.tracing.site import Site


@decomposition("ai.onnx.ml::Scaler")
def scaler(n: Site) -> Array:
    """(x - offset) · scale in float32, each one number or one for each feature."""
    x = n.tracer.cast(n.x, np.float32)
    offset, scale = (
        np.asarray(n.attr(name, (default,)), np.float32) for name, default in (("offset", 0), ("scale", 1))
    )
    return (x - offset) * scale
