"""Transforms that older versions of ONNX Runtime lack, or get wrong."""

from __future__ import annotations

import numpy as np

from edgeopt.autodiff.rules.spectral import axis_of, length_of, multiplicities, stft, stft_problem
from edgeopt.lowering.registry import lowering
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def _is_onesided_inverse(n: Site) -> bool:
    known = not n.has(2) or n.constant(2) is not None
    return bool(n.attr("inverse", 0) and n.attr("onesided", 0)) and known


@lowering("DFT", when=_is_onesided_inverse)
def inverse_of_one_side(n: Site) -> Array:
    """The real part of the inverse of that side, with the frequencies that have a mirror image doubled."""
    place = n.tracer.constant(np.int64(axis_of(n)))
    whole = op.DFT(n.x * multiplicities(n), length_of(n), place, inverse=1)
    return op.Slice(whole, [0], [1], [-1]).with_shape(n.y.shape)


def _transforms_complex_frames(n: Site) -> bool:
    return n.x.shape[2] == 2 and stft_problem(n) is None


# ONNX Runtime 1.17 reads memory that is not the signal's.
lowering("STFT", when=_transforms_complex_frames)(stft)
