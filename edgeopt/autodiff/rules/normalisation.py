"""Normalisations."""

from __future__ import annotations

from edgeopt import tracing as xp
from edgeopt.autodiff.arrays import reshape_like
from edgeopt.autodiff.registry import rule
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def batch_statistics(x: Array, epsilon: float) -> tuple[Array, Array, Array, Array]:
    """Mean, centred input, variance and inverse deviation of each channel (axis 1), kept as (1, C, 1, …)."""
    axes = [0, *range(2, x.ndim)]
    mean = op.ReduceMean(x, axes, keepdims=1)
    centred = x - mean
    variance = op.ReduceMean(centred * centred, axes, keepdims=1)
    return mean, centred, variance, 1.0 / xp.sqrt(variance + epsilon)


def per_channel(vector: Array, x: Array) -> Array:
    """A (C,) vector as (C, 1, …), to meet x of shape (N, C, …)."""
    return op.Unsqueeze(vector, list(range(1, x.ndim - 1))) if x.ndim > 2 else vector


@rule("BatchNormalization")
def batch_normalization(n: Site, g: Array, *_statistics: Array | None) -> list[Array | None]:
    """With the batch's own statistics in training mode, with the running ones (constants) otherwise."""
    x, scale = n.x, n.input(1)
    axes = [0, *range(2, x.ndim)]
    epsilon = n.number("epsilon", 1e-5)
    gain = per_channel(scale, x)
    if not n.attr("training_mode", 0):
        mean, variance = per_channel(n.input(3), x), per_channel(n.input(4), x)
        inverse = 1.0 / xp.sqrt(variance + epsilon)
        to_x = g * (gain * inverse) if n.needs[0] else None
        to_bias = op.ReduceSum(g, axes, keepdims=0) if n.needs[2] or n.needs[3] else None
        to_scale = None
        if n.needs[1] or n.needs[4]:
            to_scale = reshape_like(op.ReduceSum(g * ((x - mean) * inverse), axes, keepdims=0), scale)
        to_mean = to_variance = None
        if n.needs[3] and to_bias is not None:
            to_mean = -(to_bias * scale) * reshape_like(inverse, scale)
        if n.needs[4] and to_scale is not None:
            to_variance = -0.5 * to_scale * scale * reshape_like(inverse * inverse, scale)
        return [to_x, to_scale, to_bias, to_mean, to_variance]
    _, centred, _, inverse = batch_statistics(x, epsilon)
    sum_g = op.ReduceSum(g, axes, keepdims=1)
    sum_gx = op.ReduceSum(g * centred, axes, keepdims=1)
    to_x = None
    if n.needs[0]:
        # With x^ the normalised input: dx = scale/deviation (g - mean(g) - x^ mean(g x^)). The channels' factors are
        # multiplied before they meet the large tensors.
        count = xp.astype(op.Size(x), x.dtype) / xp.astype(op.Size(scale), x.dtype)
        slope = sum_gx * (inverse * inverse) / count
        to_x = (g - (centred * slope + sum_g / count)) * (gain * inverse)
    to_scale = reshape_like(sum_gx * inverse, scale) if n.needs[1] else None
    return [to_x, to_scale, reshape_like(sum_g, scale) if n.needs[2] else None, None, None]


@rule("LayerNormalization")
def layer_normalization(n: Site, g: Array, *_statistics: Array | None) -> list[Array | None]:
    """Over the axes from `axis` on; mean and deviation are computed again, which is cheaper than keeping them."""
    x, scale = n.x, n.input(1)
    first = n.attr("axis", -1) % x.ndim
    axes = list(range(first, x.ndim))
    leading = list(range(first))
    normed, inverse = _normed(x, axes, n.number("epsilon", 1e-5))
    to_x = to_scale = to_bias = None
    if n.needs[0]:
        to_x = _through_normed(g * scale, normed, inverse, axes)
    if n.needs[1]:
        to_scale = reshape_like(op.ReduceSum(g * normed, leading, keepdims=0), scale)
    if n.has(2) and n.needs[2]:
        to_bias = reshape_like(op.ReduceSum(g, leading, keepdims=0), n.input(2))
    return [to_x, to_scale, to_bias]


@rule("InstanceNormalization")
def instance_normalization(n: Site, g: Array) -> list[Array | None]:
    """Statistics of each channel of each sample."""
    x, scale = n.x, n.input(1)
    spatial = list(range(2, x.ndim))
    normed, inverse = _normed(x, spatial, n.number("epsilon", 1e-5))
    others = [0, *spatial]
    to_scale = op.ReduceSum(g * normed, others, keepdims=0) if n.needs[1] else None
    to_bias = op.ReduceSum(g, others, keepdims=0) if n.needs[2] else None
    to_x = _through_normed(g * per_channel(scale, x), normed, inverse, spatial) if n.needs[0] else None
    return [to_x, to_scale, to_bias]


@rule("MeanVarianceNormalization")
def mean_variance_normalization(n: Site, g: Array) -> Array:
    """(x - mean) / (deviation + 1e-9), as the operator's function body has it; its root is differentiated as it is."""
    axes = list(n.attr("axes", (0, 2, 3)))
    normed, inverse = _normed(n.x, axes, 0.0)
    return _through_normed(g, normed, inverse, axes)


@rule("LpNormalization")
def lp_normalization(n: Site, g: Array) -> Array:
    """x / ‖x‖, of order 1 or 2 along one axis."""
    axis = [n.attr("axis", -1)]
    along = op.ReduceSum(g * n.y, axis, keepdims=1)
    if n.attr("p", 2) == 1:
        return (g - xp.sign(n.x) * along) / op.ReduceL1(n.x, axis, keepdims=1)
    return (g - n.y * along) / op.ReduceL2(n.x, axis, keepdims=1)


def _normed(x: Array, axes: list[int], epsilon: float) -> tuple[Array, Array]:
    """The input with mean 0 and variance 1 over the axes, and the inverse deviation."""
    centred = x - op.ReduceMean(x, axes, keepdims=1)
    inverse = 1.0 / xp.sqrt(op.ReduceMean(centred * centred, axes, keepdims=1) + epsilon)
    return centred * inverse, inverse


def _through_normed(h: Array, normed: Array, inverse: Array, axes: list[int]) -> Array:
    """The adjoint of `_normed`."""
    mean_h = op.ReduceMean(h, axes, keepdims=1)
    mean_hx = op.ReduceMean(h * normed, axes, keepdims=1)
    return (h - mean_h - normed * mean_hx) * inverse
