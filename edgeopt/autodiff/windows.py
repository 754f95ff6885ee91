"""Sliding windows: what convolution and pooling share, in any number of spatial dimensions.

A window of `kernel` taps, `dilations` apart, visits position `o·stride` of the padded input and reads the taps
`o·stride + k·dilation`. `taps` cuts out what tap k reads at all positions; `scatter_taps` is its adjoint.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeopt import tracing as xp
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import Dim, is_static
from edgeopt.tracing.site import Site

__all__ = ["Window", "images_of", "pad", "pooling_ends", "same_padding", "taps", "window_of"]

_TO_THE_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Window:
    """Geometry of a sliding window; one entry for each spatial dimension.

    Attributes:
        kernel: Taps.
        strides: Distance of neighbouring positions.
        dilations: Distance of neighbouring taps.
        begin: Padding in front.
        end: Padding behind.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """Elements from the first tap to the last, both included."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def is_padded(self) -> bool:
        """Whether there is any padding."""
        return any(self.begin) or any(self.end)

    @property
    def is_common(self) -> bool:
        """Whether native kernels know it: one or two axes, and padding in which no window lies as a whole."""
        begin, end = zip(self.begin, self.extents, strict=True), zip(self.end, self.extents, strict=True)
        return len(self.kernel) in (1, 2) and all(-extent < p < extent for p, extent in (*begin, *end))

    def attributes(self, group: int = 1) -> dict[str, Any]:
        """The geometry as a node's attributes."""
        return {
            "kernel_shape": list(self.kernel),
            "strides": list(self.strides),
            "dilations": list(self.dilations),
            "pads": [*self.begin, *self.end],
            "group": group,
        }

    def with_end(self, end: Sequence[int]) -> Window:
        """The same window with other padding behind."""
        return replace(self, end=tuple(end))

    def without_padding(self) -> Window:
        """The same window over an input that has its padding already."""
        zeros = (0,) * len(self.kernel)
        return replace(self, begin=zeros, end=zeros)

    def remainders(self, size: Sequence[Dim]) -> list[int | None]:
        """Elements of the padded input behind the last window; None where only the run will tell."""
        spaces = zip(size, self.begin, self.end, self.extents, self.strides, strict=True)
        return [
            0 if s == 1 else (d + b + e - extent) % s if isinstance(d, int) else None for d, b, e, extent, s in spaces
        ]


def window_of(n: Site, kernel: Sequence[int]) -> Window | None:
    """The window of a Conv or pooling node; None where SAME padding depends on a size that is not known."""
    rank = len(kernel)
    ones = (1,) * rank
    window = Window(
        tuple(kernel), tuple(n.attr("strides", ones)), tuple(n.attr("dilations", ones)), (0,) * rank, (0,) * rank
    )
    auto_pad = n.attr("auto_pad", "NOTSET")
    if auto_pad == "NOTSET":
        pads = tuple(n.attr("pads", (0,) * (2 * rank)))
        return replace(window, begin=pads[:rank], end=pads[rank:])
    if auto_pad == "VALID":
        return window
    totals = []
    for size, stride, extent in zip(n.x.shape[2:], window.strides, window.extents, strict=True):
        if isinstance(size, int):
            totals.append(max((-(-size // stride) - 1) * stride + extent - size, 0))
        elif stride == 1:
            totals.append(extent - 1)
        else:
            return None
    less = tuple(total // 2 for total in totals)
    more = tuple(total - half for total, half in zip(totals, less, strict=True))
    begin, end = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    return replace(window, begin=begin, end=end)


def same_padding(n: Site, kernel: Sequence[int]) -> tuple[Window, Array]:
    """A window without padding, and the SAME padding it needs, computed at run time as Pad takes it."""
    rank = len(kernel)
    ones = (1,) * rank
    strides, dilations = tuple(n.attr("strides", ones)), tuple(n.attr("dilations", ones))
    window = Window(tuple(kernel), strides, dilations, (0,) * rank, (0,) * rank)
    size = op.Shape(n.x, start=2)
    steps, extents = np.asarray(strides, np.int64), np.asarray(window.extents, np.int64)
    reach = (size - np.ones(rank, np.int64)) / steps * steps + extents
    total = xp.maximum(reach - size, np.zeros(rank, np.int64))
    less = total / np.full(rank, 2, np.int64)
    begin, end = (less, total - less) if n.attr("auto_pad") == "SAME_UPPER" else (total - less, less)
    none = np.zeros(2, np.int64)
    return window, op.Concat(none, begin, none, end, axis=0)


def _pads(begin: Sequence[int], end: Sequence[int]) -> NDArray[np.int64]:
    return np.asarray([0, 0, *begin, 0, 0, *end], np.int64)


def _grown(x: Array, begin: Sequence[int], end: Sequence[int]) -> tuple[Dim, ...]:
    spatial = zip(x.shape[2:], begin, end, strict=True)
    return (*x.shape[:2], *(d + b + e if isinstance(d, int) else (d if b + e == 0 else None) for d, b, e in spatial))


def pad(x: Array, begin: Sequence[int], end: Sequence[int], value: float = 0.0) -> Array:
    """Padding of the spatial dimensions, negative to cut off."""
    if not any(begin) and not any(end):
        return x
    fill = None if value == 0.0 else np.asarray(value, x.dtype)
    return op.Pad(x, _pads(begin, end), fill).with_shape(_grown(x, begin, end))


def images_of(x: Array) -> Array:
    """(N, C, …) as (N·C, 1, …)."""
    spatial = x.shape[2:]
    if is_static(spatial):
        return op.Reshape(x, [-1, 1, *spatial])
    target = op.Concat(np.asarray([-1, 1], np.int64), op.Shape(x, start=2), axis=0)
    return op.Reshape(x, target).with_shape((None, 1, *spatial))


def pooling_ends(n: Site, window: Window) -> list[int]:
    """The padding behind that lets each window of a pooling node lie inside; negative to cut off what none reads.

    With `ceil_mode` the last window may reach beyond the node's own padding. Where sizes are not known, something may
    be left over.
    """
    ends = list(window.end)
    for axis, (size, count) in enumerate(zip(n.x.shape[2:], n.y.shape[2:], strict=True)):
        stride = window.strides[axis]
        if isinstance(size, int) and isinstance(count, int):
            ends[axis] = (count - 1) * stride + window.extents[axis] - size - window.begin[axis]
        elif n.attr("ceil_mode", 0):
            ends[axis] += stride - 1
    return ends


def taps(padded: Array, window: Window, count: Array | None = None) -> Iterator[Array]:
    """What each tap reads at all positions, in row-major order of the taps: (N, C, positions…).

    Args:
        padded: The padded input.
        window: Geometry; its padding is not looked at.
        count: The numbers of positions, an int64 vector, where fewer count than fit into the padded input.
    """
    rank = len(window.kernel)
    axes = np.arange(2, 2 + rank, dtype=np.int64)
    steps = np.asarray(window.strides, np.int64)
    last: Any
    for index in itertools.product(*map(range, window.kernel)):
        first = np.asarray(index, np.int64) * np.asarray(window.dilations, np.int64)
        if count is None:
            # Counted from the back, so that the size need not be known.
            behind = np.asarray(window.extents, np.int64) - 1 - first
            last = np.where(behind == 0, _TO_THE_END, -behind)
            if not first.any() and not behind.any() and set(window.strides) == {1}:
                yield padded
                continue
            yield op.Slice(padded, first, last, axes, steps)
        else:
            last = (count - np.ones(rank, np.int64)) * steps + (first + 1)
            yield op.Slice(padded, first, last, axes, steps)
