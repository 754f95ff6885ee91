"""Images read at the points of a grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.definitions import by_definition
from edgeopt.autodiff.sampling import Near, clipped, cubic, linear, nearest, read, reflected, size_of, within
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site

_NEAR: Any = {"nearest": nearest, "linear": linear, "bilinear": linear, "cubic": cubic, "bicubic": cubic}


@by_definition("GridSample")
def grid_sample(n: Site) -> Array:
    """Coordinates from -1 to 1, the last axis first, become indices; what is outside is padded.

    Interpolation is piecewise: at the elements themselves the gradient with respect to the grid is that of the piece
    behind, and at the border that of `padding_mode` outside, as in PyTorch.
    """
    x, grid = n.x, n.input(1)
    rank = x.ndim - 2
    parts = [op.Squeeze(op.Slice(grid, [i], [i + 1], [-1]), [-1]) for i in reversed(range(rank))]
    near = [_near(n, part, size_of(x, 2 + axis)) for axis, part in enumerate(parts)]
    batch = _numbers(x, rank)
    values = read(x, batch, near)
    total = op.Sum(*values) if len(values) > 1 else values[0]
    return op.Transpose(total, perm=[0, 1 + rank, *range(1, 1 + rank)])


def _numbers(x: Array, rank: int) -> Array:
    """0, 1, … for each image, as (N, 1, …)."""
    count = x.shape[0]
    if isinstance(count, int):
        return x.tracer.constant(np.arange(count).reshape(-1, *[1] * rank))
    zero, one = (x.tracer.constant(np.int64(i)) for i in (0, 1))
    numbers = op.Range(zero, op.Squeeze(op.Shape(x, end=1), [0]), one)
    return op.Unsqueeze(numbers, list(range(1, 1 + rank)))


def _near(n: Site, part: Array, size: Array | float) -> list[Near]:
    """The elements near one coordinate of the grid, as `mode` and `padding_mode` have it."""
    aligned, padding, mode = n.attr("align_corners", 0), n.attr("padding_mode", "zeros"), n.attr("mode", "linear")
    coordinate = (part + 1.0) * ((size - 1.0) * 0.5) if aligned else ((part + 1.0) * size - 1.0) * 0.5

    def inside(coordinate: Array) -> Array:
        if padding == "reflection":
            coordinate = reflected(coordinate, 0.0, size - 1.0) if aligned else reflected(coordinate, -0.5, size)
        return clipped(coordinate, size)

    smooth = mode in ("cubic", "bicubic")
    # The cubic pieces have elements outside even where the coordinate is inside: there each is padded by itself.
    if padding != "zeros" and not smooth:
        coordinate = inside(coordinate)
    near: list[Near] = _NEAR[mode](coordinate)
    if padding == "zeros":
        return [Near(i, m if w is None else w * m) for i, w in near for m in (within(i, size),)]
    return [Near(inside(i), w) for i, w in near] if smooth else near


def _unknown_rank(n: Site) -> str | None:
    return None if isinstance(n.x.shape[1], int) else "its matrices have a shape that is not known before the run"


@by_definition("AffineGrid", limits=_unknown_rank)
def affine_grid(n: Site) -> Array:
    """The coordinates of an image's elements from -1 to 1, mapped by a matrix for each image."""
    rank = int(n.x.shape[1] or 0)
    axes = []
    for axis in range(rank):
        size = op.Squeeze(op.Slice(n.input(1), [2 + axis], [3 + axis]), [0])
        numbers = op.Range(n.tracer.constant(np.int64(0)), size, n.tracer.constant(np.int64(1)))
        count, place = xp.astype(size, n.x.dtype), xp.astype(numbers, n.x.dtype)
        if n.attr("align_corners", 0):
            spread = place * (2.0 / xp.maximum(count - 1.0, 1.0)) - 1.0
        else:
            spread = (place * 2.0 + 1.0) / count - 1.0
        axes.append(op.Unsqueeze(spread, [i for i in range(rank + 1) if i != axis]))
    size = op.Slice(n.input(1), [2], [2 + rank])
    whole = op.Concat(size, np.ones(1, np.int64), axis=0)
    # The last axis comes first among the coordinates, and a one for the shift last.
    parts = [op.Expand(part, whole) for part in reversed(axes)]
    points = op.Concat(*parts, xp.ones_like(parts[0]), axis=-1)
    flat = op.Reshape(points, [-1, rank + 1])
    mapped = op.MatMul(flat, op.Transpose(n.x, perm=[0, 2, 1]))
    shape = op.Concat(op.Shape(n.x, end=1), size, np.asarray([rank], np.int64), axis=0)
    return op.Reshape(mapped, shape)
