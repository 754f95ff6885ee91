"""Spatial operators whose kernels are missing, in float64 or at all."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.rules.deformable import deform_conv, deform_conv_problem
from edgeopt.autodiff.rules.local_response import local_response_normalization
from edgeopt.autodiff.rules.pooling import Pooling
from edgeopt.autodiff.rules.sampling import affine_grid
from edgeopt.autodiff.rules.unpooling import columns_window
from edgeopt.autodiff.windows import images_of
from edgeopt.lowering.registry import is_double, lowering
from edgeopt.lowering.windows import ungrouped_images
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site

double = partial(lowering, when=is_double)


def _lacks_local_response(n: Site) -> bool:
    """ONNX Runtime's kernel is for images, and for windows that have a middle."""
    return is_double(n) or n.x.ndim != 4 or n.attr("size") % 2 == 0


lowering("LRN", when=_lacks_local_response)(local_response_normalization)


# The operator's function body has constants in float32.
double("AffineGrid")(affine_grid)

# ONNX Runtime has no kernel before 1.25.
lowering("DeformConv", when=lambda n: deform_conv_problem(n) is None)(deform_conv)


def _powers(n: Site) -> Array:
    power = n.attr("p", 2)
    return n.x * n.x if power == 2 else xp.abs(n.x) ** float(power)


def _root(n: Site, total: Array) -> Array:
    power = n.attr("p", 2)
    return xp.sqrt(total) if power == 2 else total ** (1.0 / power)


@double("LpPool")
def lp_pool(n: Site) -> Array:
    """The root of the sum of powers over each window."""
    pooling = Pooling(n)
    return _root(n, ungrouped_images(n, pooling.sum(pooling.pad(images_of(_powers(n))))))


@double("GlobalLpPool")
def global_lp_pool(n: Site) -> Array:
    """The root of the sum of powers over the spatial dimensions."""
    return _root(n, op.ReduceSum(_powers(n), list(range(2, n.x.ndim)), keepdims=1))


@double("MaxUnpool")
def max_unpool(n: Site) -> Array:
    """The elements scattered over zeros."""
    shape = n.input(2) if n.has(2) else _pooled_shape(n)
    size = op.ReduceProd(shape, keepdims=1)
    zeros = op.Expand(n.tracer.constant(np.zeros(1, n.x.dtype)), size)
    positions = op.Reshape(n.input(1), [-1])
    return op.Reshape(op.ScatterElements(zeros, positions, op.Reshape(n.x, [-1])), shape).with_shape(n.y.shape)


def _pooled_shape(n: Site) -> Array:
    """The shape that pooling with the node's window makes the input's shape of."""
    rank = n.x.ndim - 2
    kernel, strides, pads = n.attr("kernel_shape"), n.attr("strides", (1,) * rank), n.attr("pads", (0,) * 2 * rank)
    more = [k - b - e - s for k, s, b, e in zip(kernel, strides, pads[:rank], pads[rank:], strict=True)]
    grown = op.Shape(n.x, start=2) * np.asarray(strides, np.int64) + np.asarray(more, np.int64)
    return op.Concat(op.Shape(n.x, end=2), grown, axis=0)


def _block_is_known(n: Site) -> bool:
    return is_double(n) and n.constant(2) is not None


@lowering("Col2Im", when=_block_is_known)
def col2im(n: Site) -> Array:
    """A transposed convolution whose kernels each put one tap in its place."""
    window = columns_window(n)
    rank, count = len(window.kernel), math.prod(window.kernel)
    image, strides = n.input(1), np.asarray(window.strides, np.int64)
    begin, end, extents = (np.asarray(sizes, np.int64) for sizes in (window.begin, window.end, window.extents))
    positions = (image + (begin + end - extents)) / strides + np.ones(rank, np.int64)
    columns = op.Reshape(n.x, op.Concat(np.asarray([-1, count], np.int64), positions, axis=0))
    columns = columns.with_shape((None, count, *(None,) * rank))
    one_hot = n.tracer.constant(np.eye(count, dtype=n.x.dtype).reshape(count, 1, *window.kernel))
    total = op.ConvTranspose(columns, one_hot, strides=window.strides, dilations=window.dilations)
    behind = image + begin - ((positions - np.ones(rank, np.int64)) * strides + extents)
    none = np.zeros(2, np.int64)
    cut = op.Pad(total, op.Concat(none, -begin, none, behind, axis=0))
    channels = op.Div(op.Shape(n.x, start=1, end=2), np.int64(count))
    shape = op.Concat(op.Shape(n.x, end=1), channels, image, axis=0)
    return op.Reshape(cut, shape).with_shape(n.y.shape)
