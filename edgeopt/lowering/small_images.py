"""Convolutions of a few positions with a large weight.

ONNX Runtime multiplies image by image, and reads the whole weight for each: where an image has hardly more than a pixel
left, that is most of the time. One product over all images reads it once. One thread, CPU time in ms, 8 images, a 3x3
kernel: 512 channels of 2x2 positions 4.0 against 1.6 (PyTorch 2.2), 256 to 512 with stride 2 to 2x2 2.0 against 0.8
(1.2), but 256 channels of 4x4 1.2 against 1.4 (1.1).
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from edgeopt.autodiff.windows import images_of, window_of
from edgeopt.lowering.registry import lowering
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import fixed, is_static
from edgeopt.tracing.site import Site

_FEW_POSITIONS = 8
_LARGE_WEIGHT = 1 << 18


def _is_small(n: Site) -> bool:
    w, spatial = n.input(1), n.y.shape[2:]
    if n.attr("group", 1) != 1 or n.x.value.dtype != ir.DataType.FLOAT or not is_static((*w.shape, *spatial)):
        return False
    if not is_static(n.x.shape[2:]) or n.attr("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return False
    taps, positions, elements = (math.prod(fixed(shape)) for shape in (w.shape[2:], spatial, w.shape))
    return taps > 1 and 0 < positions <= _FEW_POSITIONS and elements >= _LARGE_WEIGHT


@lowering("Conv", when=_is_small)
def conv(n: Site) -> Array:
    """What the taps read, side by side for all images, times the weight as a matrix."""
    w = n.input(1)
    (features, channels), kernel = fixed(w.shape[:2]), fixed(w.shape[2:])
    count, positions = math.prod(kernel), fixed(n.y.shape[2:])
    window, length = window_of(n, kernel), math.prod(positions)
    if window is None:
        raise LookupError("A convolution with explicit padding has a window.")
    one_hot = n.tracer.constant(np.eye(count, dtype=np.float32).reshape(count, 1, *kernel))
    pads = [*window.begin, *window.end]
    read = op.Conv(images_of(n.x), one_hot, strides=window.strides, dilations=window.dilations, pads=pads)
    columns = op.Transpose(op.Reshape(read, [-1, channels * count, length]), perm=[1, 0, 2])
    matrix = op.Reshape(w, [features, channels * count])
    product = op.MatMul(matrix, op.Reshape(columns, [channels * count, -1]))
    images = op.Transpose(op.Reshape(product, [features, -1, length]), perm=[1, 0, 2])
    result = op.Reshape(images, [-1, features, *positions])
    if n.has(2):
        result = result + op.Reshape(n.input(2), [features, *(1 for _ in positions)])
    return result.with_shape(n.y.shape)
