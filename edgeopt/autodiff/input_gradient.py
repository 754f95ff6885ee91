"""The gradient of a convolution by its input, in the fastest of five forms.

Measured on ONNX Runtime 1.32, one thread of an AVX-512 Xeon that others were using too, in ms of CPU time,
(N, C, size) -> M channels, k kernel, s stride; torch's own in the same run:

    ======================  ==========  =======  ====  ===========  =====
    shape                   transposed  columns  rows  convolution  torch
    ======================  ==========  =======  ====  ===========  =====
    (8, 512, 2) 512 k3      9.1         2.3            18           3.8
    (8, 256, 4) 512 k3 s2   4.1         1.0                         2.9
    (8, 256, 4) 256 k3      2.2         1.4            3.8          1.2
    (8, 128, 8) 256 k3 s2   1.2         0.71                        0.85
    (8, 128, 8) 128 k3      1.25        1.5            1.8          0.94
    (8, 256, 7) 256 k3      4.6         4.7            6.6          3.1
    (8, 64, 56) 64 k3       19          32             17           14
    (8, 112, 3) 1280 k1     0.54        0.30     0.17  0.28         0.43
    (8, 56, 3) 336 k1       0.09        0.07     0.03  0.05         0.07
    (8, 192, 6) 32 k1       0.09        0.09     0.06  0.05         0.16
    (8, 16, 48) 8 k1        0.20        0.28     0.29  0.11         0.36
    (8, 1024, 7) 256 k1     2.3         2.0      1.6   1.8          2.8
    ======================  ==========  =======  ====  ===========  =====

Depthwise ones of stride 1, as convolutions with the kernels the other way round:

    ======================  ==========  =======  =====
    shape                   transposed  flipped  torch
    ======================  ==========  =======  =====
    (8, 16, 48) k3          0.94        0.73     0.65
    (8, 48, 24) k3          0.65        0.52     0.58
    (8, 96, 12) k3          0.43        0.39     0.23
    (8, 336, 3) k3          0.54        0.38     0.12
    ======================  ==========  =======  =====

ONNX Runtime's transposed convolution multiplies image by image, and reads the whole weight for each.
"""

from __future__ import annotations

import math

import numpy as np

from edgeopt.autodiff.windows import Window
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import fixed, is_static

__all__ = ["input_gradient", "transposed_convolution"]

# Up to so many positions the images are laid one behind the other, so that the weight is read once.
_FEW_POSITIONS = 16

# Thinner weights are read quickly, however often.
_LARGE_WEIGHT = 1 << 14


def input_gradient(g: Array, w: Array, x: Array, window: Window, group: int) -> Array:
    """The adjoint of a convolution with respect to its input.

    Args:
        g: The cotangent of its output, (N, M, positions…).
        w: The weight, (M, C/group, k…).
        x: The input, (N, C, …), whose shape the result has.
        window: Geometry.
        group: The channels are divided into so many groups.
    """
    if group == 1 and is_static((*w.shape, *x.shape[2:], *g.shape[2:])):
        few = math.prod(fixed(g.shape[2:])) <= _FEW_POSITIONS
        if math.prod(window.kernel) == 1 and not window.is_padded and set(window.strides) == {1}:
            return (_of_rows if few else _of_points)(g, w, x)
        large = math.prod(fixed(w.shape[:2])) >= _LARGE_WEIGHT
        if few and large and len(window.kernel) == 2 and min(*window.begin, *window.end) >= 0:
            return _of_columns(g, w, x, window)
    if _is_depthwise(w, x, window, group):
        return _of_flipped(g, w, x, window, group)
    return transposed_convolution(g, w, x, window, group)


def _is_depthwise(w: Array, x: Array, window: Window, group: int) -> bool:
    """Whether each channel has a kernel of its own, which moves by one and hangs over by no more than it is long."""
    padding = (*window.begin, *window.end)
    room = [extent - 1 for extent in (*window.extents, *window.extents)]
    fits = all(0 <= pad <= most for pad, most in zip(padding, room, strict=True))
    return fits and group > 1 and tuple(w.shape[:2]) == (group, 1) and set(window.strides) == {1} and is_static(w.shape)


def _of_flipped(g: Array, w: Array, x: Array, window: Window, group: int) -> Array:
    """A convolution with the kernels the other way round."""
    count = math.prod(window.kernel)
    flipped = op.Gather(op.Reshape(w, [group, count]), np.arange(count)[::-1].copy(), axis=1)
    pads = [
        extent - 1 - pad
        for side in (window.begin, window.end)
        for extent, pad in zip(window.extents, side, strict=True)
    ]
    kernels = op.Reshape(flipped, fixed(w.shape))
    return op.Conv(g, kernels, dilations=window.dilations, pads=pads, group=group).with_shape(x.shape)


def _of_points(g: Array, w: Array, x: Array) -> Array:
    """Of a kernel of one tap: a convolution with the transposed weight."""
    return op.Conv(g, op.Transpose(w, perm=[1, 0, *range(2, w.ndim)])).with_shape(x.shape)


def _of_rows(g: Array, w: Array, x: Array) -> Array:
    """The same as one product, of the rows that all positions of all images make."""
    (features, channels), spatial = fixed(w.shape[:2]), fixed(x.shape[2:])
    rows = op.Reshape(op.Transpose(op.Reshape(g, [0, features, -1]), perm=[0, 2, 1]), [-1, features])
    product = op.MatMul(rows, op.Reshape(w, [features, channels]))
    images = op.Transpose(op.Reshape(product, [-1, math.prod(spatial), channels]), perm=[0, 2, 1])
    return op.Reshape(images, [-1, channels, *spatial]).with_shape(x.shape)


def _of_columns(g: Array, w: Array, x: Array, window: Window) -> Array:
    """What each tap gives to each position, as one product over all images, and then put in its place."""
    (features, channels), count = fixed(w.shape[:2]), math.prod(window.kernel)
    length = math.prod(fixed(g.shape[2:]))
    turned = op.Reshape(op.Transpose(op.Reshape(g, [0, features, -1]), perm=[1, 0, 2]), [features, -1])
    product = op.Gemm(op.Reshape(w, [features, channels * count]), turned, transA=1)
    columns = op.Transpose(op.Reshape(product, [channels * count, -1, length]), perm=[1, 0, 2])
    image = op.Col2Im(
        columns,
        fixed(x.shape[2:]),
        list(window.kernel),
        strides=window.strides,
        dilations=window.dilations,
        pads=[*window.begin, *window.end],
    )
    return image.with_shape(x.shape)


def transposed_convolution(g: Array, w: Array, x: Array, window: Window, group: int) -> Array:
    """The adjoint of a convolution with respect to its input `x`."""
    remainders = window.remainders(x.shape[2:])
    # Where the size is not known, leave room for the longest remainder and cut the result.
    room = [stride - 1 if r is None else r for r, stride in zip(remainders, window.strides, strict=True)]
    result = op.ConvTranspose(
        g,
        w,
        strides=window.strides,
        dilations=window.dilations,
        pads=[*window.begin, *window.end] if window.is_padded else None,
        output_padding=room if any(room) else None,
        group=group,
    )
    if None in remainders:
        axes = list(range(2, x.ndim))
        result = op.Slice(result, [0] * len(axes), op.Shape(x, start=2), axes)
    return result.with_shape(x.shape)
