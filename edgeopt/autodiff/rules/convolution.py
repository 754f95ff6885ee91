"""Convolutions of any spatial rank, with groups, strides, dilations and every form of padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeopt.autodiff.correlation import correlation
from edgeopt.autodiff.input_gradient import input_gradient
from edgeopt.autodiff.registry import rule
from edgeopt.autodiff.windows import Window, pad, same_padding, window_of
from edgeopt.tracing import Array, op
from edgeopt.tracing.fusing import all_of, fused
from edgeopt.tracing.shapes import Dim, fixed, is_static
from edgeopt.tracing.site import Site

# Of the input, in a group; with one there is a kernel of its own.
_FEW_CHANNELS = 8


@rule("Conv", limits=lambda n: _unknown_kernel(n))
def conv(n: Site, g: Array) -> list[Array | None]:
    """dX is the transposed convolution of the cotangent; dW correlates it with the input."""
    w, group = n.input(1), n.attr("group", 1)
    x = _with_channels(n.x, w.shape[1], group)
    window = window_of(n, _kernel(w))
    pads: Array | None = None
    if window is None:
        window, pads = same_padding(n, _kernel(w))
        x = op.Pad(x, pads).with_shape((*x.shape[:2], *(None,) * len(window.kernel)))
    to_x = to_w = to_b = None
    if n.needs[0]:
        to_x = _input_gradient(g, w, x, window, group)
        if pads is not None:
            to_x = op.Pad(to_x, -pads).with_shape(n.x.shape)
    if n.needs[1]:
        to_w = _weight_gradient(x, g, w, window, group)
    if n.has(2) and n.needs[2]:
        to_b = _sum_to_channels(g)
    return [to_x, to_w, to_b]


def _input_gradient(g: Array, w: Array, x: Array, window: Window, group: int) -> Array:
    width = w.shape[1]
    few = isinstance(width, int) and 1 < width < _FEW_CHANNELS
    if few or not window.is_common or not is_static(x.shape[2:]):
        # The kernel computes whole vectors of channels, or the size is not known.
        return input_gradient(g, w, x, window, group)

    def plain(g: Array, w: Array) -> Array:
        return input_gradient(g, w, x, window, group)

    return all_of(fused("ConvInputGrad", [g, w], plain, size=fixed(x.shape[2:]), **window.attributes(group)))[0]


def _weight_gradient(x: Array, g: Array, w: Array, window: Window, group: int) -> Array:
    def plain(x: Array, g: Array) -> Array:
        return correlation(pad(x, window.begin, window.end), g, window, group).with_shape(w.shape)

    if not window.is_common:
        return plain(x, g)
    return all_of(fused("ConvWeightGrad", [x, g], plain, **window.attributes(group)))[0]


@rule("ConvTranspose", limits=lambda n: _unknown_kernel(n))
def conv_transpose(n: Site, g: Array) -> list[Array | None]:
    """The transposed rules: dX is a convolution, dW correlates with the roles exchanged."""
    w = n.input(1)
    x = _with_channels(n.x, w.shape[0], 1)
    window, pads = transposed_window(n)
    # The cotangent padded (or cut) so that the windows at the positions of x fill it exactly.
    if pads is None:
        padded = pad(g, window.begin, window.end)
    else:
        padded = op.Pad(g, pads).with_shape((*g.shape[:2], *(None,) * len(window.kernel)))
    group = n.attr("group", 1)
    to_x = to_w = to_b = None
    if n.needs[0]:
        to_x = op.Conv(padded, w, strides=window.strides, dilations=window.dilations, group=group).with_shape(x.shape)
    if n.needs[1]:
        to_w = correlation(padded, x, window, group).with_shape(w.shape)
    if n.has(2) and n.needs[2]:
        to_b = _sum_to_channels(g)
    return [to_x, to_w, to_b]


def _with_channels(x: Array, width: Dim, group: int) -> Array:
    """The operand with the number of channels that the weight, whose shape is known, says it has."""
    if isinstance(x.shape[1], int) or not isinstance(width, int):
        return x
    return op.Identity(x).with_shape((x.shape[0], width * group, *x.shape[2:]))


def _kernel(w: Array) -> tuple[int, ...]:
    return tuple(dim for dim in w.shape[2:] if isinstance(dim, int))


def _unknown_kernel(n: Site) -> str | None:
    known = all(isinstance(dim, int) for dim in n.input(1).shape)
    return None if known else "its weight has a shape that is not known before the run"


def _sum_to_channels(g: Array) -> Array:
    return op.ReduceSum(g, [0, *range(2, g.ndim)], keepdims=0)


def transposed_window(n: Site) -> tuple[Window, Array | None]:
    """The window that a ConvTranspose moves over its output, padded or cut so that it fits exactly.

    Where `output_shape` is given, and the input's size is not known before the run, the window is without padding; that
    comes by itself, as Pad takes it.

    Source: the shape formulas of the ONNX operator: what `output_shape` or SAME leaves over is padding, the larger
    half in front except for SAME_UPPER; `output_padding` lengthens the output at the end.
    """
    kernel = _kernel(n.input(1))
    rank = len(kernel)
    strides, dilations = tuple(n.attr("strides", (1,) * rank)), tuple(n.attr("dilations", (1,) * rank))
    extra: Sequence[int] = n.attr("output_padding", (0,) * rank)
    auto_pad, output_shape = n.attr("auto_pad", "NOTSET"), n.attr("output_shape")
    zeros = (0,) * rank
    window = Window(kernel, strides, dilations, zeros, zeros)
    if output_shape is None and auto_pad in ("NOTSET", "VALID"):
        pads = n.attr("pads", (0,) * 2 * rank) if auto_pad == "NOTSET" else (0,) * 2 * rank
        begin = tuple(pads[:rank])
        end = tuple(p - e for p, e in zip(pads[rank:], extra, strict=True))
        return Window(kernel, strides, dilations, begin, end), None
    if output_shape is None:
        # The output is `stride` times the input, whatever that is.
        totals = [e + extent - stride for e, extent, stride in zip(extra, window.extents, strides, strict=True)]
    elif is_static(n.x.shape[2:]):
        full = zip(n.x.shape[2:], strides, extra, window.extents, output_shape[-rank:], strict=True)
        totals = [stride * (int(size or 0) - 1) + e + extent - out for size, stride, e, extent, out in full]
    else:
        return window, _transposed_padding(n, window, extra)
    less = tuple(total // 2 for total in totals)
    more = tuple(total - half for total, half in zip(totals, less, strict=True))
    begin, end = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    return Window(kernel, strides, dilations, begin, tuple(e - p for e, p in zip(end, extra, strict=True))), None


def _transposed_padding(n: Site, window: Window, extra: Sequence[int]) -> Array:
    """The same at run time."""
    rank = len(window.kernel)
    strides, added, extents, output = (
        np.asarray(sizes, np.int64) for sizes in (window.strides, extra, window.extents, n.attr("output_shape")[-rank:])
    )
    total = op.Shape(n.x, start=2) * strides + (added + extents - strides - output)
    # Division rounds towards zero, but the remainder has the divisor's sign.
    two = np.full(rank, 2, np.int64)
    less = (total - op.Mod(total, two)) / two
    begin, end = (less, total - less) if n.attr("auto_pad", "NOTSET") == "SAME_UPPER" else (total - less, less)
    none = np.zeros(2, np.int64)
    return op.Concat(none, begin, none, end - added, axis=0)
