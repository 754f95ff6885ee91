"""Pooling of any spatial rank. Every channel is pooled alike, so (N, C, …) is treated as N·C images of one channel."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeopt import tracing as xp
from edgeopt.autodiff.arrays import expand_like, reshape_like
from edgeopt.autodiff.input_gradient import transposed_convolution
from edgeopt.autodiff.registry import rule
from edgeopt.autodiff.rules.elementwise import passing
from edgeopt.autodiff.windows import images_of, pad, pooling_ends, same_padding, window_of
from edgeopt.tracing import Array, op
from edgeopt.tracing.fusing import all_of, fused
from edgeopt.tracing.shapes import is_static
from edgeopt.tracing.site import Site


class Pooling:
    """A pooling node's window and padding.

    Attributes:
        window: The window; its padding behind is what lets every window lie inside.
        run_time_pads: The padding as Pad takes it, where it is only known at run time.
        count: The numbers of positions, where they may be fewer than fit: `ceil_mode` drops windows that would begin
            in the padding behind.
    """

    def __init__(self, n: Site) -> None:
        self.site = n
        kernel = tuple(n.attr("kernel_shape"))
        window = window_of(n, kernel)
        self.run_time_pads: Array | None = None
        if window is None:
            self.window, self.run_time_pads = same_padding(n, kernel)
        else:
            self.window = window.with_end(pooling_ends(n, window))
        self.count: Array | None = None
        if n.attr("ceil_mode", 0) and not is_static(n.x.shape[2:]):
            self.count = self._count()

    def _count(self) -> Array:
        window = self.window
        strides, begin = np.asarray(window.strides, np.int64), np.asarray(window.begin, np.int64)
        reach = begin + np.asarray(window.end, np.int64) - np.asarray(window.extents, np.int64)
        size = op.Shape(self.site.x, start=2)
        # `window.end` holds the round-up already.
        return xp.minimum((size + reach) / strides + np.int64(1), (size + (begin - 1)) / strides + np.int64(1))

    def pad(self, images: Array, value: float = 0.0) -> Array:
        """Images with their padding."""
        if self.run_time_pads is None:
            return pad(images, self.window.begin, self.window.end, value)
        padded = op.Pad(images, self.run_time_pads, np.asarray(value, images.dtype))
        return padded.with_shape((*images.shape[:2], *(None,) * len(self.window.kernel)))

    def sum(self, padded: Array) -> Array:
        """The sum over each window of padded images, (images, 1, positions…)."""
        weight = padded.tracer.constant(np.ones((1, 1, *self.window.kernel), padded.dtype))
        window = self.window
        return self._counted(op.Conv(padded, weight, strides=window.strides, dilations=window.dilations))

    def maximum(self, padded: Array, kernel: tuple[int, ...]) -> Array:
        """The maximum over the first taps of each window of padded images, (images, 1, positions…)."""
        window, spatial = self.window, self.site.y.shape[2:]
        part = replace(window, kernel=kernel)
        # A smaller window would find more positions; cut off what only those read.
        spare = [whole - own for whole, own in zip(window.extents, part.extents, strict=True)]
        fits = zip(padded.shape[2:], spatial, part.extents, window.strides, strict=True)
        if not all(isinstance(d, int) and (d - own) // s + 1 == count for (d, count, own, s) in fits):
            padded = pad(padded, [0] * len(spare), [-elements for elements in spare])
        result = op.MaxPool(padded, kernel_shape=kernel, strides=window.strides, dilations=window.dilations)
        return self._counted(result)

    def _counted(self, result: Array) -> Array:
        """Without the positions that do not count."""
        spatial = self.site.y.shape[2:]
        if self.count is not None:
            rank = len(spatial)
            result = op.Slice(result, [0] * rank, self.count, list(range(2, 2 + rank)))
        return result.with_shape((result.shape[0], 1, *spatial))

    def ones(self) -> Array:
        """One image of ones, in the spatial shape of the node's input."""
        n = self.site
        spatial = n.x.shape[2:]
        shape: Any = [1, 1, *spatial]
        if not is_static(spatial):
            shape = op.Concat(np.ones(2, np.int64), op.Shape(n.x, start=2), axis=0)
        return op.Expand(n.tracer.constant(np.ones(1, n.x.dtype)), shape).with_shape((1, 1, *spatial))

    def scatter(self, g: Array, weight: NDArray[Any], padded: Array) -> Array:
        """A cotangent for each tap (or one for all) added where the taps read, in the shape of the node's input.

        The transposed convolution with `weight`, (channels of g, 1, taps…), does the adding.
        """
        n, window = self.site, self.window
        total = transposed_convolution(g, g.tracer.constant(weight), padded, window.without_padding(), 1)
        if self.run_time_pads is not None:
            total = op.Pad(total, -self.run_time_pads)
        elif self.count is not None:
            begin = np.asarray(window.begin, np.int64)
            total = op.Slice(total, begin, op.Shape(n.x, start=2) + begin, list(range(2, n.x.ndim)))
        else:
            total = pad(total, [-b for b in window.begin], [-e for e in window.end])
        return reshape_like(total.with_shape((total.shape[0], 1, *n.x.shape[2:])), n.x)


@rule("MaxPool")
def max_pool(n: Site, g: Array, _indices: Array | None = None) -> Array:
    """The first largest element of a window, in row-major order, takes its cotangent, as in PyTorch.

    With p[k] = 1 where the first k + 1 taps hold the maximum and 0 elsewhere, tap k takes (p[k] - p[k-1]) g. The maxima
    over the first taps are poolings of smaller windows, and the transposed convolution that adds each tap's share in
    its place does the subtraction too.

    Forward and backward in ms, one thread, (32, 16, 28) k2 / (8, 64, 56) k2 / (8, 64, 56) k3 s2: this 1.5 / 7.4 / 30;
    Slices for the taps 2.3 / 11 / 46; `Indices` and ScatterElements 2.9 / 12 / 28, but GPU providers lack them; torch
    3.1 / 12 / 17. Comparing with the maximum resized (1.3 / 5.9) would give each of several equal elements the whole
    cotangent, and ReLU does not exclude that: over a constant background all outputs of a convolution are equal, and
    positive where the bias is.
    """
    pooling = Pooling(n)
    window = pooling.window

    def plain(g: Array, x: Array, y: Array) -> Array:
        padded, largest, g = pooling.pad(images_of(x), -math.inf), images_of(y), images_of(g)
        shares = [passing(n, g, maximum == largest) for maximum in _running_maxima(pooling, padded)]
        count = len(shares) + 1
        weight = np.eye(count, dtype=g.dtype) - np.eye(count, k=1, dtype=g.dtype)
        channels = op.Concat(*shares, g, axis=1) if shares else g
        return pooling.scatter(channels, weight.reshape(count, 1, *window.kernel), padded)

    if pooling.run_time_pads is not None or pooling.count is not None or not window.is_common:
        return plain(g, n.x, n.y)
    return all_of(fused("MaxPoolGrad", [g, n.x, n.y], plain, **window.attributes()))[0]


def _running_maxima(pooling: Pooling, padded: Array) -> Iterator[Array]:
    """The maxima over the first tap, the first two, … of each window in row-major order; not that over all."""
    window = pooling.window
    last = tuple(size - 1 for size in window.kernel)
    previous_rows: Array | None = None
    for index in itertools.product(*map(range, window.kernel)):
        if index == last:
            return
        # The box from the first tap to this one. What it lacks of the taps so far lies in the rows before.
        box = pooling.maximum(padded, tuple(i + 1 for i in index))
        is_whole = index[1:] == last[1:]
        maximum = box if previous_rows is None or is_whole else xp.maximum(box, previous_rows)
        if index[-1] == last[-1]:
            previous_rows = maximum
        yield maximum


@rule("AveragePool")
def average_pool(n: Site, g: Array) -> Array:
    """Every element of a window takes its share of the cotangent."""
    pooling = Pooling(n)
    window = pooling.window
    ones = np.ones((1, 1, *window.kernel), g.dtype)
    counts_all = n.attr("count_include_pad", 0) and not n.attr("ceil_mode", 0)
    has_no_padding = is_static(n.x.shape[2:]) and max(*window.begin, *window.end) <= 0
    share = g * (1.0 / math.prod(window.kernel)) if counts_all or has_no_padding else g / _divisors(n, pooling)
    return pooling.scatter(images_of(share), ones, pooling.pad(images_of(n.x)))


def _divisors(n: Site, pooling: Pooling) -> Array:
    """What each window's sum was divided by, (1, 1, positions…): the number of elements inside.

    Where padding counts too, and `ceil_mode` lets windows reach beyond it, runtimes count differently. There the
    operator itself is asked: its average of ones is (elements inside) / divisor.
    """
    inside = pooling.sum(pooling.pad(pooling.ones()))
    if not n.attr("count_include_pad", 0):
        return inside
    attributes = {name: attribute.value for name, attribute in n.node.attributes.items()}
    return inside / op.AveragePool(pooling.ones(), **attributes).with_shape(inside.shape)


@rule("GlobalAveragePool")
def global_average_pool(n: Site, g: Array) -> Array:
    """Every element takes an equal share."""
    spatial = n.x.shape[2:]
    if is_static(spatial):
        return expand_like(g * (1.0 / math.prod(dim for dim in spatial if isinstance(dim, int))), n.x)
    return expand_like(g * (xp.astype(op.Size(n.y), g.dtype) / xp.astype(op.Size(n.x), g.dtype)), n.x)


@rule("GlobalMaxPool")
def global_max_pool(n: Site, g: Array) -> Array:
    """The first largest element takes it all, as in torch.nn.functional.adaptive_max_pool2d."""
    rows = op.Reshape(n.x, [0, 0, -1])
    first = op.ArgMax(rows, axis=2, keepdims=1)
    count = op.Squeeze(op.Shape(rows, start=2), [0])
    places = op.Range(n.tracer.constant(np.int64(0)), count, n.tracer.constant(np.int64(1)))
    return reshape_like(passing(n, op.Reshape(g, [0, 0, 1]), first == places), n.x)
