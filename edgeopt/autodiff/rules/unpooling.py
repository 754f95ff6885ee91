"""Operators that put the elements of windows back into an image: their adjoint reads them there."""

from __future__ import annotations

import math

import numpy as np

from edgeopt.autodiff.arrays import shape_of
from edgeopt.autodiff.registry import rule
from edgeopt.autodiff.windows import Window, images_of, pad
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


@rule("MaxUnpool")
def max_unpool(n: Site, g: Array) -> Array:
    """Each element's cotangent is read where it was put; elements in one place read the same, as in PyTorch.

    The indices count in the output, as ONNX Runtime has it. Where `output_shape` makes that larger than what pooling
    started from, the ONNX standard would have them count in the smaller shape.
    """
    return op.Gather(op.Reshape(g, [-1]), n.input(1)).with_shape(n.x.shape)


def _unknown_window(n: Site) -> str | None:
    return None if n.constant(2) is not None else "its block shape is not known before the run"


@rule("Col2Im", limits=_unknown_window)
def col2im(n: Site, g: Array) -> Array:
    """The columns that a sliding window reads: a convolution whose kernels each pass one tap."""
    window = columns_window(n)
    count = math.prod(window.kernel)
    one_hot = n.tracer.constant(np.eye(count, dtype=g.dtype).reshape(count, 1, *window.kernel))
    images = pad(images_of(g), window.begin, window.end)
    read = op.Conv(images, one_hot, strides=window.strides, dilations=window.dilations)
    # (N·C, taps, positions…) as (N, C·taps, L).
    return op.Reshape(read, shape_of(n.x)).with_shape(n.x.shape)


def columns_window(n: Site) -> Window:
    """The window whose columns a Col2Im adds up."""
    block = tuple(int(size) for size in np.asarray(n.constant(2)))
    rank = len(block)
    pads = tuple(n.attr("pads", (0,) * 2 * rank))
    ones = (1,) * rank
    return Window(block, tuple(n.attr("strides", ones)), tuple(n.attr("dilations", ones)), pads[:rank], pads[rank:])
