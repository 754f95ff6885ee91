"""The weight gradient of a convolution: a correlation with few results and long sums, in the fastest of four forms.

Measured on ONNX Runtime 1.32, one thread of an AVX-512 Xeon, in ms, (N, C, size) -> M channels, k kernel, s stride; the
depthwise ones while others were using the machine too, so that they compare among themselves:

    ======================  =========  ======  =======  =====
    shape                   per tap    im2col  by rows  torch
    ======================  =========  ======  =======  =====
    (32, 1, 28) 16 k3       1.7        0.47             0.26
    (16, 3, 32) 32 k3       2.1        0.89             0.47
    (8, 3, 112) 64 k7 s2    32         12               3.9
    (8, 16, 112) 32 k3 s2   13         8.7              2.9
    (8, 128, 28) 256 k3 s2  14         12               8.3
    (32, 8, 28) 16 k3       2.5        2.5              0.96
    (32, 16, 28) 32 k3      4.5        8.0              1.9
    (32, 256, 7) 256 k3     24         36               16
    (8, 64, 56) 64 k3       23         43               14
    (8, 96, 28) depthwise   6.0        13      3.1      0.98
    (8, 96, 56) same        31         45      20       5.5
    (8, 32, 112) same       49         60      25       7.0
    (8, 240, 14) same, k5   11         19      3.7      7.5
    (4, 576, 7) same        1.6        2.0     1.4      0.24
    (8, 96, 56) same, s2    19         14      16       2.7
    ======================  =========  ======  =======  =====

Small images are laid one behind the other, which moves both operands once but leaves one product instead of N with a
sum over them; in the same way, CPU time, torch's own in the same run:

    =========================  =======  ======  ======  =====
    shape                      per tap  im2col  merged  torch
    =========================  =======  ======  ======  =====
    (8, 512, 2) 512 k3         16.4     13.4    2.0     11.3
    (8, 256, 4) 512 k3 s2      7.3      6.5     0.95    2.9
    (8, 256, 4) 256 k3         4.0      3.3     1.6     1.8
    (8, 128, 8) 128 k3         2.0      2.0     1.7     1.1
    (8, 256, 7) 256 k3         6.1      6.3     4.5     3.6
    (8, 64, 16) 64 k3          1.6      2.3     2.7     1.1
    (8, 256, 14) 256 k3        15       22      21      10
    (8, 112, 3) 1280 k1        0.76             0.26    0.30
    (8, 192, 6) 32 k1          0.10             0.23    0.12
    (8, 1024, 7) 256 k1        2.3              2.5     1.6
    =========================  =======  ======  ======  =====

Other forms lost everywhere: a convolution over transposed operands, one Gemm for each tap over (channels, N·L)
(transposing both operands costs more than summing N products), and slices joined to the matrix of im2col. So did, for
depthwise ones, a dot product for each tap, image and channel, and a convolution of N·C groups with the cotangent.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgeopt.autodiff.windows import Window, images_of, taps
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import Dim, fixed, is_static

__all__ = ["correlation", "grouped"]

# Longer blocks waste more, shorter ones are too small for a product to be fast.
_LONGEST_BLOCK = 28

# With no more input channels than this, the products of single taps are too thin to be worth their calls.
_FEW_CHANNELS = 8

# How many times the elements that are moved must go into those of one image's product for the move to pay: where all
# taps are laid side by side, and where there is one.
_MOVES_OF_WINDOWS, _MOVES_OF_POINTS = 2, 5


def correlation(padded: Array, small: Array, window: Window, group: int) -> Array:
    """Sum over batch and positions of small[n, m, o] · padded[n, c, o·stride + k·dilation].

    Args:
        padded: (N, C, …), padded so that each window lies inside; a remainder behind the last window is allowed.
        small: (N, M, positions…).
        window: Geometry; its padding is not looked at.
        group: The channels are divided into so many groups, and m meets the channels of its own group.

    Returns:
        (M, C/group, k…).
    """
    channels, features = _number(padded.shape[1]), _number(small.shape[1])
    width = channels // group
    strided = any(stride > 1 for stride in window.strides)
    count = math.prod(window.kernel)
    if count > 1:
        merges = group == 1 and _merges(features, count * channels, _length(small), _MOVES_OF_WINDOWS)
        if strided or merges or (group == 1 and channels <= _FEW_CHANNELS):
            return _by_im2col(padded, small, window, group)
        if width == 1 and features == group and len(window.kernel) > 1 and is_static(small.shape[-2:]):
            return _by_rows(padded, small, window)
    rows = grouped(small, group, features // group)
    if count == 1 and group == 1 and _merges(features, channels, _length(small), _MOVES_OF_POINTS):
        (tap,) = taps(padded, window)
        return op.Reshape(_merged_product(rows, grouped(tap, 1, width)), [features, width, *window.kernel])
    parts = []
    for tap in taps(padded, window):
        columns = grouped(tap, group, width)
        parts.append(op.Reshape(_product(rows, columns), [features, width, 1]))
    total = op.Concat(*parts, axis=2) if len(parts) > 1 else parts[0]
    return op.Reshape(total, [features, width, *window.kernel])


def _product(rows: Array, columns: Array) -> Array:
    """rows · columnsᵀ, summed over the batch. ONNX Runtime fuses the transposition into the product."""
    order = [*range(columns.ndim - 2), columns.ndim - 1, columns.ndim - 2]
    return op.ReduceSum(op.MatMul(rows, op.Transpose(columns, perm=order)), [0], keepdims=0)


def _merges(features: int, columns: int, length: Dim, moves: int) -> bool:
    """Whether moving the operands costs less than adding up a product for each image."""
    return isinstance(length, int) and moves * length * (features + columns) <= features * columns


def _merged_product(rows: Array, columns: Array) -> Array:
    """The same as one product over all positions of all images."""
    features, count = _number(rows.shape[1]), _number(columns.shape[1])
    left, right = (op.Transpose(each, perm=[1, 0, 2]) for each in (rows, columns))
    return op.Gemm(op.Reshape(left, [features, -1]), op.Reshape(right, [count, -1]), transB=1)


def _by_im2col(padded: Array, small: Array, window: Window, group: int) -> Array:
    """All taps at once: a convolution whose kernels each pass one tap lays them side by side.

    It gathers with strides several times faster than Slice.
    """
    channels, features = _number(padded.shape[1]), _number(small.shape[1])
    width, count = channels // group, math.prod(window.kernel)
    one_hot = np.eye(count, dtype=padded.dtype).reshape(count, 1, *window.kernel)
    weight = padded.tracer.constant(one_hot)
    read = op.Conv(images_of(padded), weight, strides=window.strides, dilations=window.dilations)
    middle = [group, width * count] if group > 1 else [width * count]
    length = _length(small)
    target: Any = [-1, *middle, length]
    if not isinstance(length, int):
        target = op.Concat(op.Shape(small, end=1), np.asarray([*middle, -1], np.int64), axis=0)
    columns = op.Reshape(read, target).with_shape((padded.shape[0], *middle, length))
    merges = group == 1 and _merges(features, width * count, length, _MOVES_OF_WINDOWS)
    product = (_merged_product if merges else _product)(grouped(small, group, features // group), columns)
    return op.Reshape(product, [features, width, *window.kernel])


def _by_rows(padded: Array, small: Array, window: Window) -> Array:
    """Depthwise: for each tap along the other axes, the products of rows of the input with rows of `small`.

    Of this matrix a diagonal is needed for each tap along the rows. Most of the work is thrown away, and it is still
    faster than multiplying element by element and summing, which reads and writes whole tensors for each tap. Rows are
    divided into blocks, so that less is thrown away, and put first, so that a product sums over the batch too.
    """
    (*leading, along, across), dilation = window.kernel, window.dilations[-2]
    channels, rows = _number(padded.shape[1]), _number(small.shape[-2])
    blocks = -(-rows // _LONGEST_BLOCK)
    block = -(-rows // blocks)
    reach = block + dilation * (along - 1)
    order = [1, small.ndim - 2, 0, *range(2, small.ndim - 2), small.ndim - 1]
    turned, cotangent = op.Transpose(padded, perm=order), op.Transpose(small, perm=order)
    missing = [0] * small.ndim
    if blocks > 1:
        short = blocks * block - rows
        if short:
            cotangent = op.Pad(cotangent, [*missing, 0, short, *missing[2:]])
            turned = op.Pad(turned, [*missing, 0, short, *missing[2:]])
        read = np.arange(blocks)[:, None] * block + np.arange(reach)
        turned = op.Gather(turned, read.reshape(-1), axis=1)
    columns = op.Transpose(op.Reshape(cotangent, [channels * blocks, block, -1]), perm=[0, 2, 1])
    products = []
    for index in np.ndindex(*leading, across):
        tap = _without_rows(turned, index, window)
        product = op.MatMul(op.Reshape(tap, [channels * blocks, reach, -1]), columns)
        if blocks > 1:
            product = op.ReduceSum(op.Reshape(product, [channels, blocks, reach * block]), [1], keepdims=0)
        products.append(op.Reshape(product, [channels, 1, reach * block]))
    matrix = op.Concat(*products, axis=1) if len(products) > 1 else products[0]
    places = np.arange(along)[:, None] * (dilation * block) + np.arange(block) * (block + 1)
    diagonals = op.Reshape(op.Gather(matrix, places.reshape(-1), axis=2), [channels, len(products), along, block])
    sums = op.Reshape(op.ReduceSum(diagonals, [3], keepdims=0), [channels, 1, *leading, across, along])
    axes = list(range(2 + len(leading)))
    return op.Transpose(sums, perm=[*axes, len(axes) + 1, len(axes)])


def _without_rows(turned: Array, index: tuple[int, ...], window: Window) -> Array:
    """What a tap reads along all axes but the rows, which come second, before the batch."""
    axes = [*range(3, turned.ndim)]
    others = [*range(len(axes) - 1), len(axes)]
    first = [i * window.dilations[axis] for i, axis in zip(index, others, strict=True)]
    behind = [window.extents[axis] - 1 - f for f, axis in zip(first, others, strict=True)]
    last = [-elements if elements else np.iinfo(np.int64).max for elements in behind]
    return op.Slice(turned, first, last, axes)


def _number(dim: Dim) -> int:
    if not isinstance(dim, int):
        raise LookupError(f"The gradient of a convolution needs a dimension that is not known: {dim}.")
    return dim


def _length(x: Array) -> Dim:
    """The number of positions."""
    spatial = fixed(x.shape[2:])
    return math.prod(spatial) if len(spatial) == x.ndim - 2 else None


def grouped(x: Array, group: int, width: int) -> Array:
    """(N, C, positions…) as (N, C, L), or as (N, group, C/group, L) where there are groups."""
    middle = [group, width] if group > 1 else [width]
    return op.Reshape(x, [0, *middle, -1]).with_shape((x.shape[0], *middle, _length(x)))
