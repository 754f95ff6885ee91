"""Arithmetic for which ONNX Runtime has no kernel at all."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.lowering.registry import lowering
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def _is_of_floats(n: Site) -> bool:
    return n.x.dtype.kind == "f" and not n.attr("fmod", 0)


@lowering("Mod", when=_is_of_floats)
def mod(n: Site) -> Array:
    """The remainder with the sign of the divisor, which ONNX allows for floats from opset 28 on.

    It is C's remainder, which has the sign of the dividend, moved by one divisor where these signs differ.
    """
    divisor = n.input(1)
    remainder = op.Mod(n.x, divisor, fmod=1)
    return remainder + divisor * xp.astype(remainder * divisor < 0.0, n.x.dtype)


def _has_no_power(n: Site) -> bool:
    types = (np.float32, np.float64, np.int32, np.int64)
    return n.x.dtype.kind not in "iu" and not (n.x.dtype in types and n.input(1).dtype in types)


@lowering("Pow", when=_has_no_power)
def power(n: Site) -> Array:
    """Its bases and exponents are of four types; of half precision, single is taken."""
    exact = n.x.dtype if n.x.dtype == np.float64 else np.dtype(np.float32)
    return xp.astype(xp.astype(n.x, exact) ** xp.astype(n.input(1), exact), n.x.dtype)
