"""Transforms that older versions of ONNX Runtime lack, or get wrong."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.rules.spectral import axis_of, length_of, multiplicities, stft, stft_problem
from edgeopt.lowering.registry import is_double, lowering
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def _is_onesided_inverse(n: Site) -> bool:
    known = not n.has(2) or n.constant(2) is not None
    return bool(n.attr("inverse", 0) and n.attr("onesided", 0)) and known


@lowering("DFT", when=_is_onesided_inverse)
def inverse_of_one_side(n: Site) -> Array:
    """The real part of the inverse of that side, with the frequencies that have a mirror image doubled."""
    place = n.tracer.constant(np.int64(axis_of(n)))
    whole = _inverse(n.x * multiplicities(n), length_of(n), place)
    return op.Slice(whole, [0], [1], [-1]).with_shape(n.y.shape)


def _is_double_inverse(n: Site) -> bool:
    known = not n.has(2) or n.constant(2) is not None
    return bool(is_double(n) and n.attr("inverse", 0) and not n.attr("onesided", 0)) and known


@lowering("DFT", when=_is_double_inverse)
def inverse_in_double(n: Site) -> Array:
    """By the forward transform."""
    return _inverse(n.x, length_of(n), n.tracer.constant(np.int64(axis_of(n)))).with_shape(n.y.shape)


def _inverse(x: Array, length: Array, axis: Array) -> Array:
    """The forward transform with real and imaginary parts exchanged before and after, in float64.

    ONNX Runtime's inverse is good to 1e-8 there where the length is not a power of two.
    """
    if x.dtype != np.float64:
        return op.DFT(x, length, axis, inverse=1)
    if x.shape[-1] == 1:
        x = xp.concat([x, xp.zeros_like(x)], axis=-1)
    return _exchanged(op.DFT(_exchanged(x), length, axis)) / xp.astype(length, x.dtype)


def _exchanged(x: Array) -> Array:
    return op.Gather(x, np.asarray([1, 0]), axis=-1)


def _transforms_complex_frames(n: Site) -> bool:
    return n.x.shape[2] == 2 and stft_problem(n) is None


# ONNX Runtime 1.17 reads memory that is not the signal's.
lowering("STFT", when=_transforms_complex_frames)(stft)
