"""Regions of an image, pooled to one size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.definitions import by_definition
from edgeopt.autodiff.registry import refuse
from edgeopt.autodiff.rules.elementwise import indicator
from edgeopt.autodiff.sampling import Near, clipped, linear, read, size_of
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site

refuse(
    "it rounds its regions to whole elements, and is superseded",
    "MaxRoiPool",
    alternative="use RoiAlign",
)  # fmt: skip


class _Samples(NamedTuple):
    """Where the cells of each region are sampled along one axis, as arrays of shape (regions, cells, samples).

    Attributes:
        near: The elements near the samples.
        counts: The number of samples in a cell, (regions, 1, 1) where it depends on the region's size.
        is_sample: 1 for the samples that count, where regions have different numbers of them.
    """

    near: list[Near]
    counts: Array | float
    is_sample: Array | None


@by_definition("RoiAlign")
def roi_align(n: Site) -> Array:
    """Each cell of a region is sampled at regular points; the regions themselves are constants, as in torchvision.

    In mode `max`, the maximum is over the weighted elements near all the samples, before they are added up: so does
    ONNX Runtime.
    """
    rows = _samples(n, 1, n.attr("output_height", 1))
    columns = _samples(n, 0, n.attr("output_width", 1))
    near = [_spread(rows.near, [3, 4]), _spread(columns.near, [1, 2])]
    # (regions, rows, samples, columns, samples, channels)
    values = read(n.x, op.Unsqueeze(xp.astype(n.input(2), np.int64), [1, 2, 3, 4]), near)
    is_sample: Array | None = None
    if rows.is_sample is not None and columns.is_sample is not None:
        is_sample = op.Unsqueeze(rows.is_sample, [3, 4, 5]) * op.Unsqueeze(columns.is_sample, [1, 2, 5])
    pooled = (_maximum if n.attr("mode", "avg") == "max" else _average)(values, rows.counts * columns.counts, is_sample)
    return op.Transpose(pooled, perm=[0, 3, 1, 2])


def _spread(near: list[Near], axes: list[int]) -> list[Near]:
    return [Near(op.Unsqueeze(i, axes), None if w is None else op.Unsqueeze(w, axes)) for i, w in near]


def _average(values: list[Array], count: Array | float, is_sample: Array | None) -> Array:
    total = op.Sum(*values)
    if is_sample is not None:
        total = total * is_sample
    samples = max(count, 1.0) if isinstance(count, float) else op.Unsqueeze(xp.maximum(count, 1.0), [3])
    return op.ReduceSum(total, [2, 4], keepdims=0) / samples


def _maximum(values: list[Array], count: Array | float, is_sample: Array | None) -> Array:
    highest = op.Max(*values)
    if is_sample is None:
        return op.ReduceMax(highest, [2, 4], keepdims=0)
    counting = xp.where(is_sample > 0.5, highest, xp.full_like(is_sample, -xp.inf))
    pooled = op.ReduceMax(counting, [2, 4], keepdims=0)
    empty = op.Unsqueeze(count < 0.5, [3]) if isinstance(count, Array) else count < 0.5
    return xp.where(empty, xp.zeros_like(pooled), pooled)


def _samples(n: Site, position: int, cells: int) -> _Samples:
    """Along x (position 0) or y (position 1) of the regions' corners (x, y, x, y)."""
    regions = xp.stop_gradient(n.input(1))
    half = n.attr("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    scale = n.number("spatial_scale", 1.0)
    corners = regions * scale - 0.5 if half else regions * scale
    first, last = (op.Unsqueeze(op.Slice(corners, [i], [i + 1], [1]), [2]) for i in (position, position + 2))
    extent = last - first if half else xp.maximum(last - first, 1.0)
    cell = extent * (1.0 / cells)
    count, numbers = _counts(n, cell)
    places = n.tracer.constant(np.arange(cells, dtype=n.x.dtype).reshape(1, -1, 1))
    coordinate = first + cell * places + (numbers + 0.5) * (cell / count)
    size = size_of(n.x, 3 - position)
    inside = indicator(coordinate >= -1.0, coordinate) * indicator(coordinate <= size, coordinate)
    near = [Near(i, inside if w is None else w * inside) for i, w in linear(clipped(coordinate, size))]
    is_sample = indicator(numbers < count, cell) if isinstance(count, Array) else None
    return _Samples(near, count, is_sample)


def _counts(n: Site, cell: Array) -> tuple[Array | float, Array]:
    """Samples in a cell, and the numbers 0, 1, … up to the most, as (1, 1, samples)."""
    ratio = n.attr("sampling_ratio", 0)
    if ratio > 0:
        return float(ratio), n.tracer.constant(np.arange(ratio, dtype=n.x.dtype).reshape(1, 1, -1))
    count = op.Ceil(cell)
    # One more cell, in case there is no region.
    most = op.ReduceMax(op.Concat(op.Squeeze(count, [1, 2]), np.ones(1, n.x.dtype), axis=0), keepdims=0)
    numbers = op.Range(n.tracer.constant(np.zeros((), n.x.dtype)), most, n.tracer.constant(np.ones((), n.x.dtype)))
    return count, op.Unsqueeze(numbers, [0, 1])
