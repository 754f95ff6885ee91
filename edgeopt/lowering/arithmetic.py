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


def _has_another_exponent(n: Site) -> bool:
    return n.x.dtype.kind == "f" and n.input(1).dtype not in (np.float32, np.float64, np.int32, np.int64)


@lowering("Pow", when=_has_another_exponent)
def power(n: Site) -> Array:
    """Its exponents are of four types."""
    return n.x ** xp.astype(n.input(1), n.x.dtype)
