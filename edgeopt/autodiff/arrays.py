"""What gradient rules say about shapes: sum to, reshape like, expand like."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import Shape, is_static, same_dim

__all__ = ["expand_like", "normalize_axes", "reshape_like", "shape_of", "sum_like", "transpose_last"]


def shape_of(x: Array) -> Any:
    """The shape as an int64 vector: a constant where it is known, a Shape node where it is symbolic."""
    return np.asarray(x.shape, np.int64) if is_static(x.shape) else op.Shape(x)


def reshape_like(g: Array, x: Array) -> Array:
    """The elements of `g` in the shape of `x`."""
    if len(g.shape) == len(x.shape) and all(map(same_dim, g.shape, x.shape)):
        return g
    unknown = [axis for axis, dim in enumerate(x.shape) if not isinstance(dim, int)]
    if len(unknown) <= 1 and 0 not in x.shape:
        target = np.asarray([-1 if axis in unknown else dim for axis, dim in enumerate(x.shape)], np.int64)
        return op.Reshape(g, target).with_shape(x.shape)
    return op.Reshape(g, shape_of(x), allowzero=1).with_shape(x.shape)


def expand_like(g: Array, x: Array) -> Array:
    """`g` broadcast to the shape of `x`."""
    if len(g.shape) == len(x.shape) and all(map(same_dim, g.shape, x.shape)):
        return g
    return op.Expand(g, shape_of(x)).with_shape(x.shape)


def normalize_axes(axes: Any, ndim: int) -> list[int]:
    """Axes as non-negative numbers in increasing order."""
    return sorted(int(axis) % ndim for axis in np.atleast_1d(axes)) if ndim else []


def transpose_last(x: Array) -> Array:
    """The last two dimensions exchanged."""
    order = list(range(x.ndim))
    order[-1], order[-2] = order[-2], order[-1]
    return op.Transpose(x, perm=order)


def sum_like(g: Array, x: Array, broadcast_shape: Shape | None = None) -> Array:
    """The adjoint of broadcasting: `g`, which has the broadcast shape, summed to the shape of `x`.

    Where a dimension of `x` is symbolic and not known to equal the broadcast one, the axes are found at run time.
    """
    full = g.shape if broadcast_shape is None else broadcast_shape
    extra = len(full) - x.ndim
    aligned = full[extra:]
    if not extra and all(map(same_dim, x.shape, aligned)):
        return g
    leading = list(range(extra))
    undecided = [dim for dim, other in zip(x.shape, aligned, strict=True) if not isinstance(dim, int) and dim != other]
    if undecided or any(dim is None for dim in x.shape):
        return _sum_like_at_run_time(g, x, extra)
    stretched = [
        axis + extra for axis, (dim, other) in enumerate(zip(x.shape, aligned, strict=True)) if dim == 1 and other != 1
    ]
    if not leading and not stretched:
        return g.with_shape(x.shape)
    if not stretched:
        return op.ReduceSum(g, leading, keepdims=0).with_shape(x.shape)
    total = op.ReduceSum(g, leading + stretched, keepdims=1)
    return (op.Squeeze(total, leading) if leading else total).with_shape(x.shape)


def _sum_like_at_run_time(g: Array, x: Array, extra: int) -> Array:
    ones_in_front = np.ones(extra, np.int64)
    shape = op.Shape(x)
    padded = op.Concat(ones_in_front, shape, axis=0) if extra else shape
    axes = op.Squeeze(op.NonZero(op.Equal(padded, np.asarray([1], np.int64))), [0])
    # Axes of size one in both are summed too, which changes nothing.
    total = op.ReduceSum(g, axes, keepdims=1, noop_with_empty_axes=1).with_shape((None,) * g.ndim)
    return op.Reshape(total, shape).with_shape(x.shape)
