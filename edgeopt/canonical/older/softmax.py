"""Softmax, LogSoftmax and Hardmax before opset 13: over everything from an axis on."""

from __future__ import annotations

from edgeopt.canonical.older.editing import rewritten
from edgeopt.canonical.registry import adapter
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


@adapter("Hardmax", "LogSoftmax", "Softmax", before=13, typed=True)
def flattened(n: Site) -> Array:
    """The tensor was taken for a matrix, split in front of `axis` (1 by default); each row was one distribution."""
    axis = int(n.attr("axis", 1))
    last = n.x.ndim - 1
    if axis in (last, -1) or all(dim == 1 for dim in n.x.shape[axis % n.x.ndim + 1 :]):
        return rewritten(n, n.x, axis=axis)[0]
    rows = n.tracer.emit(n.node.op_type, op.Flatten(n.x, axis=axis), axis=-1)
    return op.Reshape(rows, op.Shape(n.x)).with_shape(n.x.shape)
