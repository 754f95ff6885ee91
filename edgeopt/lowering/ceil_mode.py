"""Pooling with `ceil_mode`, which runtimes round in different ways.

A window that would begin in the padding behind does not count; ONNX Runtime before 1.18 counts it, and fills its output
with the lowest number or 0. Where padding counts in an average, what a window reads beyond the padding does not; ONNX
Runtime before 1.18 counts that too. With padding that ends where the last window ends there is nothing to round.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeopt.autodiff.rules.pooling import Pooling
from edgeopt.autodiff.windows import Window, images_of, pad, pooling_ends, window_of
from edgeopt.lowering.registry import lowering
from edgeopt.lowering.windows import average_pool, ungrouped_images
from edgeopt.tracing import Array
from edgeopt.tracing.shapes import is_static
from edgeopt.tracing.site import Site


def _declared_window(n: Site) -> Window | None:
    """The window of a node that rounds, with the node's own padding; None where there is nothing to decide here."""
    if not n.attr("ceil_mode", 0) or not is_static(n.x.shape[2:]):
        return None
    return window_of(n, tuple(n.attr("kernel_shape")))


def _rounds(n: Site) -> bool:
    window = _declared_window(n)
    if window is None:
        return False
    # Where it is not the last window's, the end of the padding cuts windows off, or is surpassed by the last one.
    pairs = list(zip(pooling_ends(n, window), window.end, strict=True))
    counts_beyond = n.attr("count_include_pad", 0) and any(end > declared for end, declared in pairs)
    return counts_beyond or any(end < declared for end, declared in pairs)


@lowering("AveragePool", "LpPool", "MaxPool", when=_rounds)
def pooling_without_rounding(n: Site) -> tuple[Array, ...]:
    """The padding behind ends with the last window; where that is inside the input, the input is cut."""
    window = _declared_window(n)
    if window is None:
        raise LookupError(f"The padding of {n} is not known.")
    ends = pooling_ends(n, window)
    x = pad(n.x, [0] * len(ends), [min(end, 0) for end in ends])
    attributes = {name: attribute.value for name, attribute in n.node.attributes.items()}
    attributes.pop("auto_pad", None)
    attributes.update(ceil_mode=0, pads=[*window.begin, *(max(end, 0) for end in ends)])
    results = n.tracer.emit(n.node.op_type, x, outputs=len(n.node.outputs), **attributes)
    if not n.attr("count_include_pad", 0):
        return results
    return (results[0] * _correction(n, window),)


def _rounds_at_run_time(n: Site) -> bool:
    return bool(n.attr("ceil_mode", 0)) and not is_static(n.x.shape[2:])


@lowering("MaxPool", when=_rounds_at_run_time)
def max_pool_at_run_time(n: Site) -> Array:
    """Over an input padded for more windows than count, which are cut off."""
    pooling = Pooling(n)
    padded = pooling.pad(images_of(n.x), -math.inf)
    return ungrouped_images(n, pooling.maximum(padded, pooling.window.kernel))


lowering("AveragePool", when=_rounds_at_run_time)(average_pool)


def _correction(n: Site, window: Window) -> NDArray[Any]:
    """Taps by taps that count, (1, 1, positions…)."""
    counts = np.ones((1, 1))
    for axis, (size, positions) in enumerate(zip(n.x.shape[2:], n.y.shape[2:], strict=True)):
        limit = window.begin[axis] + int(size or 0) + window.end[axis]
        first = np.arange(int(positions or 0))[:, None] * window.strides[axis]
        inside = first + np.arange(window.kernel[axis]) * window.dilations[axis] < limit
        counts = counts[..., None] * inside.sum(1)
    return np.asarray(math.prod(window.kernel) / counts, n.x.dtype)
