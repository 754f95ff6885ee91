"""Numerically careful functions that the Array API does not have."""

from __future__ import annotations

import numpy as np

from edgeopt.array_types import Array, Namespace

__all__ = ["logsumexp", "preceding", "sigmoid"]


def log_softmax(xp: Namespace, x: Array, axis: int) -> Array:
    """Return the logarithms of the softmax over one axis; one node for the tracer."""
    if hasattr(xp, "log_softmax"):
        return xp.log_softmax(x, axis)
    return x - logsumexp(xp, x, axis)


def logsumexp(xp: Namespace, x: Array, axis: int) -> Array:
    """Return log Σ exp(x) over one axis, which is kept with length 1.

    Finite wherever the result is; -inf where all entries are. A namespace with a `logsumexp` of its own (torch, and the
    tracer, where it is one ONNX node) is asked first.
    """
    if hasattr(xp, "logsumexp"):
        return xp.logsumexp(x, axis=axis, keepdims=True)
    largest = xp.max(x, axis=axis, keepdims=True)
    # Infinite maxima must not meet themselves in a difference.
    shift = xp.where(xp.isfinite(largest), largest, 0.0)
    return xp.log(xp.sum(xp.exp(x - shift), axis=axis, keepdims=True)) + shift


def preceding(xp: Namespace, x: Array, fill: float) -> Array:
    """Each row of a matrix moved on by one: `fill` comes first, and the last element goes."""
    if hasattr(x, "tracer"):
        # Negative padding cuts off.
        return x.tracer.emit("Pad", x, [0, 1, 0, -1], np.asarray(fill, x.dtype))
    return xp.concat([xp.full_like(x[:, :1], fill), x[:, :-1]], axis=1)


def sigmoid(xp: Namespace, x: Array) -> Array:
    """1/(1 + exp(-x)) as the exponential of its logarithm: nothing overflows, small values keep their digits."""
    magnitude = xp.abs(x)
    return xp.exp(0.5 * (x - magnitude) - xp.log(1.0 + xp.exp(-magnitude)))
