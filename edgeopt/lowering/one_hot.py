"""OneHot of float64 values, for which ONNX Runtime has no kernel."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.lowering.registry import lowering
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
