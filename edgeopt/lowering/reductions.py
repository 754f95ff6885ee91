"""Reductions over no axes: ONNX Runtime 1.17 fails where `noop_with_empty_axes` is set and there is no axes input."""

from __future__ import annotations

from edgeopt import tracing as xp
from edgeopt.lowering.registry import lowering
from edgeopt.tracing import Array
from edgeopt.tracing.site import Site


def _reduces_nothing(n: Site) -> bool:
    return not n.has(1) and bool(n.attr("noop_with_empty_axes", 0))


@lowering("ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", when=_reduces_nothing)
def identity(n: Site) -> Array:
    """Each element by itself."""
    return n.x


@lowering("ReduceL1", "ReduceL2", when=_reduces_nothing)
def absolute(n: Site) -> Array:
    """The norm of one element."""
    return xp.abs(n.x)


@lowering("ReduceSumSquare", when=_reduces_nothing)
def square(n: Site) -> Array:
    """The square of one element."""
    return n.x * n.x
