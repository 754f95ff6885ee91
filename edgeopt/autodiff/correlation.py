"""The weight gradient of a convolution: a correlation with few results and long sums, in the fastest of three forms.

Measured on ONNX Runtime 1.32, one thread of an AVX-512 Xeon, in ms, (N, C, size) -> M channels, k kernel, s stride:

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
    (8, 96, 28) depthwise   6.7        20      5.1      0.63
    (8, 96, 56) same        24         78      19       2.3
    (8, 96, 56) same, s2    34         11      32       1.4
    ======================  =========  ======  =======  =====

Other forms lost everywhere: a convolution over transposed operands, one Gemm for each tap over (channels, N·L)
(transposing both operands costs more than summing N products), and slices joined to the matrix of im2col.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from edgeopt.autodiff.windows import Window, images_of, taps
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import Dim, is_static

__all__ = ["correlation", "grouped"]

# With no more input channels than this, the products of single taps are too thin to be worth their calls.
_FEW_CHANNELS = 8


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
    if math.prod(window.kernel) > 1:
        if strided or (group == 1 and channels <= _FEW_CHANNELS):
            return _by_im2col(padded, small, window, group)
        if width == 1 and features == group and len(window.kernel) > 1 and is_static(small.shape[-2:]):
            return _by_rows(padded, small, window)
    rows = grouped(small, group, features // group)
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
    product = _product(grouped(small, group, features // group), columns)
    return op.Reshape(product, [features, width, *window.kernel])


def _by_rows(padded: Array, small: Array, window: Window) -> Array:
    """Depthwise: for each tap along the other axes, the products of all rows of the input with all rows of `small`.

    Of this matrix a diagonal is needed for each tap along the rows. Most of the work is thrown away, and it is still
    faster than multiplying element by element and summing, which reads and writes whole tensors for each tap.
    """
    leading, (along, across) = window.kernel[:-2], window.kernel[-2:]
    rank, count = len(window.kernel), _number(small.shape[-2])
    flat = replace(window, kernel=(*leading, 1, across))
    turned = op.Transpose(small, perm=[*range(small.ndim - 2), small.ndim - 1, small.ndim - 2])
    sums: list[Array] = []
    for tap in taps(padded, flat):
        product = op.ReduceSum(op.MatMul(tap, turned), [0, *range(2, rank)], keepdims=0)
        matrix = op.Reshape(product, [0, -1])
        for index in range(along):
            first = index * window.dilations[-2] * count
            diagonal = op.Slice(matrix, [first], [first + count * count], [1], [count + 1])
            sums.append(op.ReduceSum(diagonal, [1], keepdims=1))
    joined = op.Reshape(op.Concat(*sums, axis=1), [0, *leading, across, along])
    order = [*range(1 + len(leading)), 2 + len(leading), 1 + len(leading)]
    return op.Unsqueeze(op.Transpose(joined, perm=order), [1])


def _number(dim: Dim) -> int:
    if not isinstance(dim, int):
        raise LookupError(f"The gradient of a convolution needs a dimension that is not known: {dim}.")
    return dim


def _length(x: Array) -> Dim:
    """The number of positions."""
    spatial = [dim for dim in x.shape[2:] if isinstance(dim, int)]
    return math.prod(spatial) if len(spatial) == x.ndim - 2 else None


def grouped(x: Array, group: int, width: int) -> Array:
    """(N, C, positions…) as (N, C, L), or as (N, group, C/group, L) where there are groups."""
    middle = [group, width] if group > 1 else [width]
    return op.Reshape(x, [0, *middle, -1]).with_shape((x.shape[0], *middle, _length(x)))
