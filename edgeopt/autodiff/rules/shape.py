"""Operators that move elements and compute nothing: their adjoint moves them back."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.arrays import reshape_like, shape_of, sum_like
from edgeopt.autodiff.registry import rule
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(n: Site, g: Array) -> Array:
    """Back to the shape it had."""
    return reshape_like(g, n.x)


@rule("Transpose")
def transpose(n: Site, g: Array) -> Array:
    """The inverse permutation."""
    order = n.attr("perm", tuple(reversed(range(n.x.ndim))))
    return op.Transpose(g, perm=[int(axis) for axis in np.argsort(order)])


@rule("Expand")
def expand(n: Site, g: Array) -> Array:
    """The sum over the copies."""
    return sum_like(g, n.x, n.y.shape)


@rule("Concat")
def concat(n: Site, g: Array) -> list[Array]:
    """Each input gets its slice."""
    axis = n.attr("axis")
    sizes = [array.shape[axis] for array in n.inputs if array is not None]
    lengths: object
    if all(isinstance(size, int) for size in sizes):
        lengths = np.asarray(sizes, np.int64)
    else:
        position = axis % n.y.ndim
        lengths = op.Concat(*(op.Shape(x, start=position, end=position + 1) for x in n.inputs), axis=0)
    pieces = n.tracer.emit("Split", g, lengths, axis=axis, outputs=len(n.inputs))
    return [piece.with_shape(n.input(i).shape) for i, piece in enumerate(pieces)]


@rule("Split")
def split(n: Site, *cotangents: Array | None) -> Array:
    """The pieces joined again; an unused piece counts zero."""
    pieces = [xp.zeros_like(y) if g is None else g for y, g in zip(n.outputs, cotangents, strict=True)]
    return op.Concat(*pieces, axis=n.attr("axis", 0)).with_shape(n.x.shape)


#: A slice that ends here or later goes on to the end, as exporters and frameworks write it.
_ENDLESS = np.iinfo(np.int32).max


@rule("Slice")
def slice_(n: Site, g: Array) -> Array:
    """The elements go back to where they were taken from, zeros elsewhere."""
    if 0 in n.y.shape:
        # Of nothing; and ONNX Runtime 1.32 takes the shape of an expanded cotangent of no elements wrongly.
        return xp.zeros_like(n.x)
    starts, ends, axes, steps = (n.constant(i) for i in range(1, 5))
    if starts is not None and ends is not None and (axes is not None or not n.has(3)) and not n.has(4):
        steps = np.ones_like(starts)
    static = starts is not None and ends is not None and steps is not None and (axes is not None or not n.has(3))
    if not static or not bool(np.all(np.asarray(steps) == 1)):
        return _scatter_slice(n, g)
    taken = np.arange(len(np.asarray(starts))) if axes is None else np.asarray(axes)
    before: list[int | Array] = [0] * n.x.ndim
    after: list[int | Array] = [0] * n.x.ndim
    for start, end, axis in zip(np.asarray(starts), np.asarray(ends), taken % n.x.ndim, strict=True):
        size = n.x.shape[int(axis)]
        if isinstance(size, int):
            first = min(max(int(start) + (size if start < 0 else 0), 0), size)
            last = min(max(int(end) + (size if end < 0 else 0), first), size)
            before[int(axis)], after[int(axis)] = first, size - last
        elif start or end < _ENDLESS:
            before[int(axis)], after[int(axis)] = _left_out(n, int(axis), int(start))
    lengths = [*before, *after]
    pads: Any = np.asarray(lengths, np.int64) if all(isinstance(length, int) for length in lengths) else None
    if pads is None:
        pads = op.Concat(*(np.asarray([x], np.int64) if isinstance(x, int) else x for x in lengths), axis=0)
    elif not pads.any():
        # Of everything.
        return g.with_shape(n.x.shape)
    return op.Pad(g, pads).with_shape(n.x.shape)


def _left_out(n: Site, axis: int, start: int) -> tuple[Array, Array]:
    """What lies before and behind a slice along an axis whose length is known when the graph runs, a vector of one."""
    length, taken = (op.Shape(x, start=axis, end=axis + 1) for x in (n.x, n.y))
    first = n.tracer.constant(np.asarray([start], np.int64))
    before = op.Min(first, length) if start >= 0 else op.Max(length + first, np.asarray([0], np.int64))
    return before, length - before - taken


def _scatter_slice(n: Site, g: Array) -> Array:
    """Slice a tensor that holds each element's own position, and scatter there; works for any step and bound."""
    count = op.ReduceProd(op.Shape(n.x), keepdims=0)
    flat = op.Range(n.tracer.constant(np.int64(0)), count, n.tracer.constant(np.int64(1)))
    positions = op.Slice(op.Reshape(flat, shape_of(n.x)), *n.inputs[1:])
    zeros = op.Expand(n.tracer.constant(np.zeros(1, g.dtype)), op.Reshape(count, [1]))
    filled = op.ScatterElements(zeros, op.Reshape(positions, [-1]), op.Reshape(g, [-1]), axis=0)
    return op.Reshape(filled, shape_of(n.x)).with_shape(n.x.shape)


@rule("Tile")
def tile(n: Site, g: Array) -> Array:
    """The sum over the copies: a dimension of size d repeated r times is (r, d)."""
    repeats, shape = op.Unsqueeze(n.input(1), [1]), op.Unsqueeze(op.Shape(n.x), [1])
    split_shape = op.Reshape(op.Concat(repeats, shape, axis=1), [-1])
    copies = op.Reshape(g, split_shape).with_shape((None,) * (2 * n.x.ndim))
    total = op.ReduceSum(copies, list(range(0, 2 * n.x.ndim, 2)), keepdims=0)
    return total.with_shape(n.x.shape)


@rule("SpaceToDepth")
def space_to_depth(n: Site, g: Array) -> Array:
    """The inverse, which has the same order of channels in its default mode."""
    return op.DepthToSpace(g, blocksize=n.attr("blocksize")).with_shape(n.x.shape)


@rule("DepthToSpace")
def depth_to_space(n: Site, g: Array) -> Array:
    """The inverse; in mode CRD its channels are put into the order (channel, row, column) afterwards."""
    block = n.attr("blocksize")
    gathered = op.SpaceToDepth(g, blocksize=block).with_shape(n.x.shape)
    if n.attr("mode", "DCR") == "DCR":
        return gathered
    channels = n.x.shape[1]
    outer = channels // (block * block) if isinstance(channels, int) else -1
    split = op.Reshape(gathered, [0, block * block, outer, -1])
    return reshape_like(op.Transpose(split, perm=[0, 2, 1, 3]), n.x)


@rule("Trilu")
def trilu(n: Site, g: Array) -> Array:
    """The same triangle of the cotangent."""
    return op.Trilu(g, n.inputs[1] if n.has(1) else None, upper=n.attr("upper", 1))
