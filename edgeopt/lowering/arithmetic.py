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


_EXPONENTS = (np.float32, np.float64, np.int32, np.int64)


def _has_another_power(n: Site) -> bool:
    return n.x.dtype.kind not in "iub" and (n.x.dtype.itemsize < 4 or n.input(1).dtype not in _EXPONENTS)


@lowering("Pow", when=_has_another_power)
def power(n: Site) -> Array:
    """Its exponents are of four types, and its bases of no smaller ones than float32."""
    wide = n.x.dtype if n.x.dtype.itemsize >= 4 else np.dtype(np.float32)
    return xp.astype(xp.astype(n.x, wide) ** xp.astype(n.input(1), wide), n.x.dtype)
