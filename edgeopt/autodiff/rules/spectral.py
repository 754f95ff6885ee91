"""Discrete Fourier transforms: linear maps, whose adjoints are transforms too.

Complex numbers are pairs in the last dimension; the adjoint is that of a linear map of pairs.
"""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.definitions import by_definition
from edgeopt.autodiff.registry import rule
from edgeopt.autodiff.rules.elementwise import indicator
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def _unknown_axis(n: Site) -> str | None:
    return None if not n.has(2) or n.constant(2) is not None else "its axis is not known before the run"


@rule("DFT", limits=_unknown_axis)
def dft(n: Site, g: Array) -> Array:
    """With F the transform of length L, the inverse is F*/L: the adjoint of F is L times the inverse, and so on."""
    axis, length = axis_of(n), length_of(n)
    place, whole = n.tracer.constant(np.int64(axis)), xp.astype(length, g.dtype)
    if n.attr("inverse", 0) and n.attr("onesided", 0):
        half = op.DFT(g, length, place, onesided=1)
        return _fitted(half, n.x, axis) * multiplicities(n) / whole
    # Frequencies that were not returned have no cotangent: as if they were zero.
    total = op.DFT(g, length, place) / whole if n.attr("inverse", 0) else op.DFT(g, length, place, inverse=1) * whole
    if n.x.shape[-1] == 1:
        total = op.Slice(total, [0], [1], [-1])
    return _fitted(total, n.x, axis)


def axis_of(n: Site) -> int:
    """The axis of the transform, not negative."""
    given = n.constant(2) if n.has(2) else None
    return (-2 if given is None else int(given.reshape(()))) % n.x.ndim


def length_of(n: Site) -> Array:
    """The length of the transform, a scalar."""
    if n.has(1):
        return n.input(1)
    axis = axis_of(n)
    size = n.x.shape[axis]
    count = n.tracer.constant(np.int64(size)) if isinstance(size, int) else _size(n.x, axis)
    halved = n.attr("inverse", 0) and n.attr("onesided", 0)
    return (count - np.int64(1)) * np.int64(2) if halved else count


def multiplicities(n: Site) -> Array:
    """How often each frequency of one side counts, shaped to meet the input: once for 0 and L/2, twice between.

    Beyond L/2 there are none.
    """
    axis, zero, one = axis_of(n), n.tracer.constant(np.int64(0)), n.tracer.constant(np.int64(1))
    twice = xp.astype(op.Range(zero, _size(n.x, axis), one), n.x.dtype) * 2.0
    length = xp.astype(length_of(n), n.x.dtype)
    counts = indicator(twice <= length, twice) + indicator(twice > 0.0, twice) * indicator(twice < length, twice)
    return op.Unsqueeze(counts, [i for i in range(n.x.ndim) if i != axis])


def _size(x: Array, axis: int) -> Array:
    return op.Squeeze(op.Shape(x, start=axis, end=axis + 1), [0])


def _fitted(total: Array, x: Array, axis: int) -> Array:
    """As long as `x` along the axis: cut off, or with zeros at the end, as the transform itself treats its input."""
    more = op.Shape(x, start=axis, end=axis + 1) - op.Shape(total, start=axis, end=axis + 1)
    pads = op.Concat(np.zeros(1, np.int64), more, axis=0)
    return op.Pad(total, pads, None, [axis]).with_shape(x.shape)


def _frame_length(n: Site) -> int | None:
    given = n.constant(3) if n.has(3) else None
    if given is not None:
        return int(given.reshape(()))
    size = None if n.has(3) else n.input(2).shape[0] if n.has(2) else n.x.shape[1]
    return size if isinstance(size, int) else None


def stft_problem(n: Site) -> str | None:
    """Why a node cannot be written as a convolution, None where it can."""
    known = n.constant(1) is not None and _frame_length(n) is not None and isinstance(n.x.shape[2], int)
    return None if known else "the step or the length of its frames is not known before the run"


@by_definition("STFT", limits=stft_problem)
def stft(n: Site) -> Array:
    """A convolution whose kernels are the window times the cosines and sines."""
    length, step = _frame_length(n) or 0, int(np.asarray(n.constant(1)).reshape(()))
    bins = length // 2 + 1 if n.attr("onesided", 1) else length
    # The angles' integer parts are taken off before they are rounded.
    angles = 2 * np.pi * (np.outer(np.arange(bins), np.arange(length)) % length) / length
    cosines, sines = np.cos(angles), np.sin(angles)
    real = np.concatenate([cosines, -sines])[:, None]
    basis = real if n.x.shape[2] == 1 else np.concatenate([real, np.concatenate([sines, cosines])[:, None]], axis=1)
    weight = n.tracer.constant(basis.astype(n.x.dtype))
    if n.has(2):
        weight = weight * n.input(2)
    y = op.Conv(op.Transpose(n.x, perm=[0, 2, 1]), weight, strides=[step])
    return op.Transpose(op.Reshape(y, [0, 2, bins, -1]), perm=[0, 3, 2, 1])
