"""Images read between their elements, in any number of spatial dimensions.

A coordinate counts elements, from 0 at the middle of the first. Along each axis it is near some elements, each with a
weight; the value is the sum over all combinations of these, as array programs that can be differentiated with respect
to the image and the coordinates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.rules.elementwise import indicator
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import broadcast

__all__ = ["Near", "clipped", "cubic", "linear", "nearest", "read", "reflected", "size_of", "within"]


class Near(NamedTuple):
    """An element that a coordinate is near: its place, as a float, and its weight (None where that is one)."""

    place: Array
    weight: Array | None


def size_of(x: Array, axis: int) -> Array | float:
    """The number of elements along an axis, in the array's own type where it is not known before the run."""
    dim = x.shape[axis]
    if isinstance(dim, int):
        return float(dim)
    return xp.astype(op.Squeeze(op.Shape(x, start=axis, end=axis + 1), [0]), x.dtype)


def nearest(coordinate: Array) -> list[Near]:
    """The nearest element, the even one of two."""
    return [Near(op.Round(coordinate), None)]


def linear(coordinate: Array) -> list[Near]:
    """The elements before and behind."""
    before = op.Floor(coordinate)
    t = coordinate - before
    return [Near(before, 1.0 - t), Near(before + 1.0, t)]


def cubic(coordinate: Array, a: float = -0.75) -> list[Near]:
    """Two elements before and two behind.

    Source: Keys, "Cubic convolution interpolation for digital image processing" (1981), equation 4.
    """
    before = op.Floor(coordinate)
    t = coordinate - before
    s = 1.0 - t
    return [
        Near(before - 1.0, a * t * s * s),
        Near(before, 1.0 - t * t * ((a + 3.0) - (a + 2.0) * t)),
        Near(before + 1.0, 1.0 - s * s * ((a + 3.0) - (a + 2.0) * s)),
        Near(before + 2.0, a * s * t * t),
    ]


def within(index: Array, size: Array | float) -> Array:
    """1 where there is an element of this index, else 0."""
    return indicator(index >= 0.0, index) * indicator(index <= size - 1.0, index)


def clipped(coordinate: Array, size: Array | float) -> Array:
    """The nearest coordinate inside; at the border and beyond, the gradient is zero, as in PyTorch."""
    inside = indicator(coordinate > 0.0, coordinate) * indicator(coordinate < size - 1.0, coordinate)
    return coordinate * inside + indicator(coordinate >= size - 1.0, coordinate) * (size - 1.0)


def reflected(coordinate: Array, low: float, span: Array | float) -> Array:
    """Reflected at `low` and `low + span` as often as it takes."""
    # An image of one element, between whose middle and itself there is nothing, reflects to that.
    span = max(span, 1.0) if isinstance(span, float) else xp.maximum(span, 1.0)
    distance = coordinate - low
    distance = distance * (1.0 - 2.0 * indicator(distance < 0.0, distance))
    turns = op.Floor(distance / span)
    odd = turns - 2.0 * op.Floor(turns * 0.5)
    rest = distance - turns * span
    return rest * (1.0 - 2.0 * odd) + span * odd + low


def read(x: Array, batch: Array, near: Sequence[Sequence[Near]]) -> list[Array]:
    """Each combination of near elements times its weight.

    Args:
        x: Images, (N, C, …).
        batch: Which image is read, int64, of a shape that broadcasts with the indices'.
        near: For each spatial axis, the near elements of a coordinate, all of one shape (or ones that broadcast). Of
            an index outside, the next element inside is read.

    Returns:
        One array for each combination, of the coordinates' shape with the channels behind.
    """
    rank = x.ndim - 2
    channels_last = op.Transpose(x, perm=[0, *range(2, x.ndim), 1])
    rows = op.Reshape(channels_last, _row_shape(x)).with_shape((None, x.shape[1]))
    sizes = [size_of(x, 2 + axis) for axis in range(rank)]
    places = [
        [xp.astype(xp.clip(one.place, 0.0, size - 1.0), np.int64) for one in axis]
        for axis, size in zip(near, sizes, strict=True)
    ]
    whole = [np.int64(size) if isinstance(size, float) else xp.astype(size, np.int64) for size in sizes]
    # There are as many images as sets of coordinates, whichever of the two is known.
    count, *others = broadcast(*(axis[0].place.shape for axis in near))
    points = (batch.shape[0] if count is None else count, *others)
    values = []
    for chosen in itertools.product(*(range(len(axis)) for axis in near)):
        place = batch
        for axis, choice in enumerate(chosen):
            place = place * whole[axis] + places[axis][choice]
        value = op.Gather(rows, place.with_shape(points)).with_shape((*points, x.shape[1]))
        weights = [w for axis, choice in enumerate(chosen) if (w := near[axis][choice].weight) is not None]
        values.append(value * op.Unsqueeze(math.prod(weights[1:], start=weights[0]), [-1]) if weights else value)
    return values


def _row_shape(x: Array) -> Array | list[int]:
    channels = x.shape[1]
    if isinstance(channels, int):
        return [-1, channels]
    return op.Concat(np.asarray([-1], np.int64), op.Shape(x, start=1, end=2), axis=0)
