"""Range, an arithmetic progression; its limit only decides how long it is."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.registry import rule
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


@rule("Range")
def range_(n: Site, g: Array) -> tuple[Array, None, Array | None]:
    """The element i is start + i delta."""
    to_start = op.ReduceSum(g, keepdims=0)
    if not n.needs[2]:
        return to_start, None, None
    zero, one = (n.tracer.constant(np.int64(number)) for number in (0, 1))
    places = xp.astype(op.Range(zero, op.Size(n.y), one), g.dtype).with_shape(g.shape)
    return to_start, None, op.ReduceSum(g * places, keepdims=0)
