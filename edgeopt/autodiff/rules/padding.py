"""Padding: what lies around a tensor is constant, or a copy of some of its elements."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.arrays import reshape_like, shape_of
from edgeopt.autodiff.registry import rule
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


@rule("Pad")
def pad(n: Site, g: Array) -> tuple[Array | None, None, Array | None]:
    """Constant padding is cut off again (and negative padding put back); copies are added to where they came from."""
    pads, axes = n.input(1), n.inputs[3] if n.has(3) else None
    if n.attr("mode", "constant") != "constant":
        return _sum_of_copies(n, g), None, None
    to_x = op.Pad(g, -pads, None, axes).with_shape(n.x.shape) if n.needs[0] else None
    if len(n.needs) < 3 or not n.needs[2]:
        return to_x, None, None
    outside = op.Pad(xp.zeros_like(n.x), pads, np.ones((), g.dtype), axes)
    return to_x, None, reshape_like(op.ReduceSum(g * outside, keepdims=0), n.input(2))


def _sum_of_copies(n: Site, g: Array) -> Array:
    """Each element's own position, padded alike, says where its copies are; works for any mode, and any axes."""
    count = op.ReduceProd(op.Shape(n.x), keepdims=0)
    numbers = op.Range(n.tracer.constant(np.int64(0)), count, n.tracer.constant(np.int64(1)))
    positions = op.Reshape(numbers, shape_of(n.x))
    sources = op.Pad(positions, n.input(1), None, n.inputs[3] if n.has(3) else None, mode=n.attr("mode"))
    zeros = op.Expand(n.tracer.constant(np.zeros(1, g.dtype)), op.Reshape(count, [1]))
    total = op.ScatterElements(zeros, op.Reshape(sources, [-1]), op.Reshape(g, [-1]), axis=0, reduction="add")
    return op.Reshape(total, shape_of(n.x)).with_shape(n.x.shape)


@rule("CenterCropPad")
def center_crop_pad(n: Site, g: Array) -> Array:
    """What was cut off comes back as zeros, and what was padded is cut off; both begin at the same element."""
    axes = n.attr("axes")
    size = shape_of(n.x)
    if axes is not None:
        size = op.Gather(n.tracer.constant(size), list(axes))
    return op.CenterCropPad(g, size, axes=axes).with_shape(n.x.shape)
