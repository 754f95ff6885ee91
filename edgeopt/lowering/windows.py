"""Convolution and pooling in float64, tap by tap: slices and matrix products."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.correlation import grouped
from edgeopt.autodiff.rules.convolution import transposed_window
from edgeopt.autodiff.rules.pooling import Pooling
from edgeopt.autodiff.windows import images_of, pad, same_padding, taps, window_of
from edgeopt.lowering.registry import is_double, lowering
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import Shape, is_static
from edgeopt.tracing.site import Site

double = partial(lowering, when=is_double)


@double("Conv")
def conv(n: Site) -> Array:
    """What the taps read, side by side, times the weight as a matrix."""
    w = n.input(1)
    kernel = tuple(dim for dim in w.shape[2:] if isinstance(dim, int))
    window = window_of(n, kernel)
    if window is None:
        window, pads = same_padding(n, kernel)
        padded = op.Pad(n.x, pads)
    else:
        padded = pad(n.x, window.begin, window.end)
    group, features, width = n.attr("group", 1), _static(w.shape[0]), _static(w.shape[1])
    read = list(taps(padded, window))
    columns = [grouped(tap, group, width) for tap in read]
    product = xp.matmul(_weight_matrix(w, group, transposed=False), op.Concat(*columns, axis=-2))
    return _with_bias(n, _ungrouped(product, read[0], features).with_shape(n.y.shape))


@double("ConvTranspose")
def conv_transpose(n: Site) -> Array:
    """The weight as a matrix times the input, each tap's part spread by the stride and moved to its place."""
    x, w = n.x, n.input(1)
    window, pads = transposed_window(n)
    group, width = n.attr("group", 1), _static(w.shape[1])
    rows = grouped(x, group, _static(w.shape[0]) // group)
    product = xp.matmul(_weight_matrix(w, group, transposed=True), rows)
    count = math.prod(window.kernel)
    parts = n.tracer.emit("Split", product, axis=-2, num_outputs=count, outputs=count) if count > 1 else (product,)
    moved = []
    for part, index in zip(parts, np.ndindex(*window.kernel), strict=True):
        images = _ungrouped(part, x, group * width)
        for axis, stride in enumerate(window.strides):
            images = _spread(images, 2 + axis, stride)
        before = [i * d for i, d in zip(index, window.dilations, strict=True)]
        after = [extent - 1 - b for extent, b in zip(window.extents, before, strict=True)]
        moved.append(pad(images, before, after))
    total = op.Sum(*moved) if count > 1 else moved[0]
    result = pad(total, [-b for b in window.begin], [-e for e in window.end]) if pads is None else op.Pad(total, -pads)
    return _with_bias(n, result.with_shape(n.y.shape))


def _static(dim: int | str | None) -> int:
    if not isinstance(dim, int):
        raise LookupError("A convolution's weight has a shape that is not known.")
    return dim


def _weight_matrix(w: Array, group: int, *, transposed: bool) -> Array:
    """The weight with taps first and channels second in one dimension, which meets the columns (or makes them)."""
    first, second = _static(w.shape[0]), _static(w.shape[1])
    flat = op.Reshape(w, [group, first // group, second, -1])
    matrix = op.Transpose(flat, perm=[0, 3, 2, 1] if transposed else [0, 1, 3, 2])
    rows, columns = (-1, first // group) if transposed else (first // group, -1)
    return op.Reshape(matrix, [group, rows, columns] if group > 1 else [rows, columns])


def _ungrouped(product: Array, like: Array, channels: int) -> Array:
    """(N, …, C, L) as (N, channels, …) with the spatial dimensions of `like`."""
    spatial = like.shape[2:]
    if is_static(spatial):
        return op.Reshape(product, [0, channels, *spatial])
    shape: Shape = (like.shape[0], channels, *spatial)
    target = op.Concat(np.asarray([0, channels], np.int64), op.Shape(like, start=2), axis=0)
    return op.Reshape(product, target).with_shape(shape)


def _spread(x: Array, axis: int, stride: int) -> Array:
    """Zeros put between neighbours along an axis: d elements become (d - 1)·stride + 1."""
    if stride == 1:
        return x
    # Reshape copies leading dimensions without knowing them, so the axis goes last and comes back.
    order = [*(i for i in range(x.ndim) if i != axis), axis]
    last = op.Unsqueeze(op.Transpose(x, perm=order), [-1])
    none = [0] * last.ndim
    zeros = op.Pad(last, [*none, *none[:-1], stride - 1])
    joined = op.Reshape(zeros, [*none[:-2], -1])
    cut = op.Pad(joined, [*none[:-1], *none[:-2], 1 - stride])
    return op.Transpose(cut, perm=[int(i) for i in np.argsort(order)])


def _with_bias(n: Site, y: Array) -> Array:
    if not n.has(2):
        return y
    bias = op.Unsqueeze(n.input(2), list(range(1, y.ndim - 1))) if y.ndim > 2 else n.input(2)
    return y + bias


@double("AveragePool")
def average_pool(n: Site) -> Array:
    """Sums over the windows, divided by the number of elements that count, as PyTorch counts them."""
    pooling = Pooling(n)
    ones = pooling.ones()
    padded_ones = _counting_padding(n, pooling, ones) if n.attr("count_include_pad", 0) else pooling.pad(ones)
    return ungrouped_images(n, pooling.sum(pooling.pad(images_of(n.x))) / pooling.sum(padded_ones))


def ungrouped_images(n: Site, pooled: Array) -> Array:
    """(N·C, 1, …) as the (N, C, …) of the node's output."""
    if is_static(n.x.shape[1:]):
        return op.Reshape(pooled, [-1, *n.y.shape[1:]]).with_shape(n.y.shape)
    target = op.Concat(op.Shape(n.x, end=2), op.Shape(pooled, start=2), axis=0)
    return op.Reshape(pooled, target).with_shape(n.y.shape)


def _counting_padding(n: Site, pooling: Pooling, ones: Array) -> Array:
    """Ones whose padding counts too, while what windows read beyond it (with `ceil_mode`) does not."""
    if pooling.run_time_pads is not None:
        return op.Pad(ones, pooling.run_time_pads, np.ones((), ones.dtype))
    declared = window_of(n, pooling.window.kernel) or pooling.window
    counted = pad(ones, declared.begin, declared.end, 1.0)
    beyond = [total - end for total, end in zip(pooling.window.end, declared.end, strict=True)]
    return pad(counted, [0] * len(beyond), beyond)


@double("GlobalAveragePool")
def global_average_pool(n: Site) -> Array:
    """The mean over the spatial dimensions."""
    return op.ReduceMean(n.x, list(range(2, n.x.ndim)), keepdims=1)


@double("GlobalMaxPool")
def global_max_pool(n: Site) -> Array:
    """The maximum over the spatial dimensions."""
    return op.ReduceMax(n.x, list(range(2, n.x.ndim)), keepdims=1)
