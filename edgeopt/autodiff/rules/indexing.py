"""Operators that pick elements: their adjoint adds each cotangent where its element came from."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.registry import rule
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


@rule("Gather")
def gather(n: Site, g: Array) -> Array:
    """Rows that were taken several times add up, as an embedding's do."""
    axis, indices = n.attr("axis", 0) % n.x.ndim, n.input(1)
    known = indices.constant
    if known is not None and known.size == 1 and isinstance(n.x.shape[axis], int):
        return _put_back_slice(n, g, axis, int(known.reshape(())))
    order = list(range(n.x.ndim))
    first = [axis, *order[:axis], *order[axis + 1 :]]
    if axis:
        # ScatterND works on leading axes: bring the gathered one (and the indices' own) to the front.
        picked = list(range(axis, axis + indices.ndim))
        rest = [i for i in range(g.ndim) if i not in picked]
        g = op.Transpose(g, perm=[*picked, *rest])
    zeros = xp.zeros_like(op.Transpose(n.x, perm=first) if axis else n.x)
    total = op.ScatterND(zeros, xp.expand_dims(indices, axis=-1), g, reduction="add")
    if axis:
        total = op.Transpose(total, perm=[int(i) for i in np.argsort(first)])
    return total.with_shape(n.x.shape)


def _put_back_slice(n: Site, g: Array, axis: int, index: int) -> Array:
    """One row: padding is cheaper than scattering."""
    size = n.x.shape[axis]
    position = index % int(size) if isinstance(size, int) else 0
    if n.input(1).ndim == 0:
        g = xp.expand_dims(g, axis=axis)
    elif n.input(1).ndim > 1:
        g = op.Squeeze(g, list(range(axis, axis + n.input(1).ndim - 1)))
    pads = np.zeros(2 * n.x.ndim, np.int64)
    pads[axis], pads[axis + n.x.ndim] = position, int(size or 0) - position - 1
    return op.Pad(g, pads).with_shape(n.x.shape)


@rule("TopK")
def top_k(n: Site, g: Array | None, _indices: Array | None = None) -> Array | None:
    """The largest elements' cotangents go back to where they were."""
    if g is None:
        return None
    return op.ScatterElements(xp.zeros_like(n.x), n.outputs[1], g, axis=n.attr("axis", -1)).with_shape(n.x.shape)


@rule("GatherElements")
def gather_elements(n: Site, g: Array) -> Array:
    """Scatter by the same indices."""
    zeros = xp.zeros_like(n.x)
    return op.ScatterElements(zeros, n.input(1), g, axis=n.attr("axis", 0), reduction="add").with_shape(n.x.shape)


def _has_batch_dims(n: Site) -> str | None:
    return "it has batch dimensions, which ScatterND does not" if n.attr("batch_dims", 0) else None


def _reduces_otherwise(n: Site) -> str | None:
    reduction = n.attr("reduction", "none")
    return None if reduction in ("none", "add") else f"its reduction is {reduction!r}; 'none' and 'add' are known"


@rule("GatherND", limits=_has_batch_dims)
def gather_nd(n: Site, g: Array) -> Array:
    """Scatter by the same indices."""
    return op.ScatterND(xp.zeros_like(n.x), n.input(1), g, reduction="add").with_shape(n.x.shape)


@rule("ScatterND", limits=_reduces_otherwise)
def scatter_nd(n: Site, g: Array) -> tuple[Array, None, Array]:
    """Updates read back from where they went; overwritten elements have no gradient of their own."""
    indices, updates = n.input(1), n.input(2)
    to_updates = op.GatherND(g, indices).with_shape(updates.shape)
    if n.attr("reduction", "none") == "add":
        return g, None, to_updates
    return op.ScatterND(g, indices, xp.zeros_like(updates)).with_shape(n.x.shape), None, to_updates


@rule("ScatterElements", limits=_reduces_otherwise)
def scatter_elements(n: Site, g: Array) -> tuple[Array, None, Array]:
    """As ScatterND, along one axis."""
    indices, axis = n.input(1), n.attr("axis", 0)
    to_updates = op.GatherElements(g, indices, axis=axis).with_shape(n.input(2).shape)
    if n.attr("reduction", "none") == "add":
        return g, None, to_updates
    zeros = xp.zeros_like(n.input(2))
    return op.ScatterElements(g, indices, zeros, axis=axis).with_shape(n.x.shape), None, to_updates
