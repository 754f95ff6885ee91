"""OneHot and Hardmax of float64 values, for which ONNX Runtime has no kernel."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.lowering.registry import is_double, lowering
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def _has_double_values(n: Site) -> bool:
    return n.input(2).value.dtype == ir.DataType.DOUBLE


@lowering("OneHot", when=_has_double_values)
def one_hot(n: Site) -> Array:
    """Off + chosen (on - off)."""
    chosen = op.OneHot(n.input(0), n.input(1), np.asarray([0, 1], np.float32), axis=n.attr("axis", -1))
    off, on = (op.Gather(n.input(2), np.int64(position)) for position in (0, 1))
    return xp.astype(chosen, np.float64) * (on - off) + off


@lowering("Hardmax", when=is_double)
def hardmax(n: Site) -> Array:
    """One at the first of the largest elements."""
    axis = n.attr("axis", -1) % n.x.ndim
    depth = op.Shape(n.x, start=axis, end=axis + 1)
    largest = op.ArgMax(n.x, axis=axis, keepdims=0)
    return xp.astype(op.OneHot(largest, depth, np.asarray([0, 1], np.float32), axis=axis), np.float64)
