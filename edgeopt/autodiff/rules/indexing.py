"""Operators that pick elements: their adjoint adds each cotangent where its element came from."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.registry import rule
from edgeopt.tracing import Array, op
from edgeopt.tracing.fusing import all_of, fused
from edgeopt.tracing.shapes import fixed, is_static
from edgeopt.tracing.site import Site


@rule("Gather")
def gather(n: Site, g: Array) -> Array:
    """Rows that were taken several times add up, as an embedding's do."""
    axis, indices = n.attr("axis", 0) % n.x.ndim, n.input(1)
    known = indices.constant
    if known is not None and known.size == 1 and isinstance(n.x.shape[axis], int):
        return _put_back_slice(n, g, axis, int(known.reshape(())))
    if not is_static(n.x.shape):
        return _added_rows(n.x, g, indices, axis)

    def plain(g: Array, indices: Array) -> Array:
        return _added_rows(n.x, g, indices, axis)

    return all_of(fused("GatherGrad", [g, indices], plain, axis=axis, shape=fixed(n.x.shape)))[0]


def _added_rows(x: Array, g: Array, indices: Array, axis: int) -> Array:
    order = list(range(x.ndim))
    first = [axis, *order[:axis], *order[axis + 1 :]]
    if axis:
        # ScatterND works on leading axes: bring the gathered one (and the indices' own) to the front.
        picked = list(range(axis, axis + indices.ndim))
        rest = [i for i in range(g.ndim) if i not in picked]
        g = op.Transpose(g, perm=[*picked, *rest])
    zeros = xp.zeros_like(op.Transpose(x, perm=first) if axis else x)
    total = op.ScatterND(zeros, _points(indices), g, reduction="add")
    if axis:
        total = op.Transpose(total, perm=[int(i) for i in np.argsort(first)])
    return total.with_shape(x.shape)


def _points(indices: Array) -> Array:
    """The indices as those of ScatterND, which are int64."""
    points: Array = xp.expand_dims(xp.astype(indices, np.int64), axis=-1)
    return points


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


@rule("GatherND")
def gather_nd(n: Site, g: Array) -> Array:
    """Scatter by the same indices; those of ScatterND name the batch dimensions too."""
    indices = n.input(1)
    batch_dims = n.attr("batch_dims", 0)
    if batch_dims:
        counts = [_own_positions(indices, axis) for axis in range(batch_dims)]
        indices = op.Concat(*counts, indices, axis=-1)
    return op.ScatterND(xp.zeros_like(n.x), indices, g, reduction="add").with_shape(n.x.shape)


def _own_positions(indices: Array, axis: int) -> Array:
    """For each point of a list, where it stands along an axis, as an index of its own."""
    zero, one = (indices.tracer.constant(np.int64(number)) for number in (0, 1))
    length = op.Squeeze(op.Shape(indices, start=axis, end=axis + 1), [0])
    positions = op.Reshape(op.Range(zero, length, one), [-1, *[1] * (indices.ndim - 1 - axis)])
    shape = op.Concat(op.Shape(indices, end=indices.ndim - 1), np.ones(1, np.int64), axis=0)
    return op.Expand(positions, shape).with_shape((*indices.shape[:-1], 1))


@rule("OneHot")
def one_hot(n: Site, g: Array) -> tuple[None, None, Array]:
    """The two values, off and on, get what arrives where they stand."""
    chosen = op.OneHot(n.input(0), n.input(1), np.asarray([0, 1], g.dtype), axis=n.attr("axis", -1))
    on = op.ReduceSum(g * chosen.with_shape(g.shape), keepdims=0)
    off = op.ReduceSum(g, keepdims=0) - on
    return None, None, op.Concat(op.Unsqueeze(off, [0]), op.Unsqueeze(on, [0]), axis=0)
