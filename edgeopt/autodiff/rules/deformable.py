"""Convolution whose taps read where offsets tell them to."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.definitions import by_definition
from edgeopt.autodiff.sampling import Near, linear, read, size_of, within
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import is_static
from edgeopt.tracing.site import Site


def deform_conv_problem(n: Site) -> str | None:
    """Why a node cannot be written as a program, None where it can."""
    known = is_static(n.input(1).shape) and isinstance(n.x.shape[1], int)
    return None if known else "its weight, or the number of channels, has a shape that is not known before the run"


@by_definition("DeformConv", limits=deform_conv_problem)
def deform_conv(n: Site) -> Array:
    """What each tap reads, linearly between the elements and zero outside, times the weight.

    Source: Dai et al., "Deformable convolutional networks" (2017); the mask, Zhu et al., "Deformable ConvNets v2"
    (2018).
    """
    x, w, offset = n.x, n.input(1), n.input(2)
    features, width, *kernel = (int(dim or 0) for dim in w.shape)
    channels, rank, taps = int(x.shape[1] or 0), len(kernel), math.prod(kernel)
    group, sets = n.attr("group", 1), n.attr("offset_group", 1)
    # Each set of offsets moves some of the channels: as images of their own, (N·sets, C/sets, …).
    images = op.Reshape(x, _target([-1, channels // sets], x))
    moves = op.Reshape(offset, _target([-1, taps, rank], offset))
    near = [_near(n, images, moves, axis, kernel) for axis in range(rank)]
    numbers = op.Range(
        n.tracer.constant(np.int64(0)), op.Squeeze(op.Shape(images, end=1), [0]), n.tracer.constant(np.int64(1))
    )
    # (N·sets, taps, positions…, C/sets)
    columns = op.Sum(*read(images, op.Unsqueeze(numbers, list(range(1, 2 + rank))), near))
    if n.has(4):
        mask = op.Reshape(n.input(4), _target([-1, taps], n.input(4)))
        columns = columns * op.Unsqueeze(mask, [-1])
    turned = op.Transpose(columns, perm=[0, 2 + rank, *range(1, 2 + rank)])
    # (N, group, C/group·taps, L)
    middle = [group, width * taps]
    shape: Any = [-1, *middle, _length(offset)]
    if shape[-1] is None:
        shape = op.Concat(op.Shape(x, end=1), np.asarray([*middle, -1], np.int64), axis=0)
    rows = op.Reshape(turned, shape)
    product = op.MatMul(op.Reshape(w, [group, features // group, width * taps]), rows)
    y = op.Reshape(product, _target([-1, features], offset))
    if n.has(3):
        y = y + op.Unsqueeze(n.input(3), list(range(1, 1 + rank)))
    return y


def _length(x: Array) -> int | None:
    spatial = x.shape[2:]
    return math.prod(int(dim or 0) for dim in spatial) if is_static(spatial) else None


def _target(leading: list[int], like: Array) -> Any:
    """A shape with the spatial dimensions of an array."""
    if is_static(like.shape[2:]):
        return [*leading, *like.shape[2:]]
    return op.Concat(np.asarray(leading, np.int64), op.Shape(like, start=2), axis=0)


def _near(n: Site, images: Array, moves: Array, axis: int, kernel: list[int]) -> list[Near]:
    """The elements near the coordinates that the taps read along one axis, (N·sets, taps, positions…)."""
    rank = len(kernel)
    stride, dilation = (n.attr(name, (1,) * rank)[axis] for name in ("strides", "dilations"))
    begin = n.attr("pads", (0,) * 2 * rank)[axis]
    move = op.Squeeze(op.Slice(moves, [axis], [axis + 1], [2]), [2])
    tap = np.asarray([index[axis] * dilation - begin for index in itertools.product(*map(range, kernel))], move.dtype)
    size = op.Squeeze(op.Shape(moves, start=3 + axis, end=4 + axis), [0])
    place = op.Range(n.tracer.constant(np.int64(0)), size, n.tracer.constant(np.int64(1))) * np.int64(stride)
    behind = list(range(1, rank - axis))
    position = xp.astype(op.Unsqueeze(place, behind) if behind else place, move.dtype)
    coordinate = move + position + tap.reshape(-1, *[1] * rank)
    extent = size_of(images, 2 + axis)
    return [Near(i, m if w is None else w * m) for i, w in linear(coordinate) for m in (within(i, extent),)]
