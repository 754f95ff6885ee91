"""Normalisations."""

from __future__ import annotations

from edgeopt import tracing as xp
from edgeopt.autodiff.arrays import expand_like, reshape_like, sum_like
from edgeopt.autodiff.registry import rule
from edgeopt.autodiff.rules.elementwise import indicator
from edgeopt.tracing import Array, op
from edgeopt.tracing.fusing import all_of, fused
from edgeopt.tracing.shapes import is_static
from edgeopt.tracing.site import Site


def batch_statistics(x: Array, epsilon: float) -> tuple[Array, Array, Array, Array]:
    """Mean, centred input, variance and inverse deviation of each channel (axis 1), kept as (1, C, 1, …)."""
    mean, variance = all_of(fused("BatchStatistics", [x], _mean_and_variance))
    return mean, x - mean, variance, 1.0 / xp.sqrt(variance + epsilon)


def _mean_and_variance(x: Array) -> list[Array]:
    axes = [0, *range(2, x.ndim)]
    mean = op.ReduceMean(x, axes, keepdims=1)
    centred = x - mean
    return [mean, op.ReduceMean(centred * centred, axes, keepdims=1)]


def per_channel(vector: Array, x: Array) -> Array:
    """A (C,) vector as (C, 1, …), to meet x of shape (N, C, …)."""
    return op.Unsqueeze(vector, list(range(1, x.ndim - 1))) if x.ndim > 2 else vector


@rule("BatchNormalization")
def batch_normalization(n: Site, g: Array | None, *statistics: Array | None) -> list[Array | None]:
    """With the batch's own statistics in training mode, with the running ones (constants) otherwise."""
    if n.attr("training_mode", 0) or g is None:
        return _training_batch_normalization(n, [g, *statistics])
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
    return _training_batch_normalization(n, [g, *statistics])


def _training_batch_normalization(n: Site, cotangents: list[Array | None]) -> list[Array | None]:
    """Also through the running statistics, the old ones mixed with the batch's."""
    g, to_running_mean, to_running_variance = [*cotangents, None, None][:3]
    x, scale = n.x, n.input(1)
    mean, centred, _, inverse = batch_statistics(x, n.number("epsilon", 1e-5))
    count = xp.astype(op.Size(x), x.dtype) / xp.astype(op.Size(scale), x.dtype)
    momentum = n.number("momentum", 0.9)
    terms: list[Array] = []
    to_scale = to_bias = None
    if g is not None:
        to_x, to_scale, to_bias = _through_batch(n, g, mean, inverse)
        terms += [] if to_x is None else [to_x]
    if n.needs[0] and to_running_mean is not None:
        terms.append(expand_like(per_channel(to_running_mean * ((1.0 - momentum) / count), x), x))
    if n.needs[0] and to_running_variance is not None:
        terms.append(centred * per_channel(to_running_variance * ((2.0 - 2.0 * momentum) / count), x))
    to_mean = to_running_mean * momentum if n.needs[3] and to_running_mean is not None else None
    to_variance = to_running_variance * momentum if n.needs[4] and to_running_variance is not None else None
    return [_total(terms), to_scale, to_bias, to_mean, to_variance]


def _through_batch(n: Site, g: Array, mean: Array, inverse: Array) -> list[Array | None]:
    """What flows from the output to input, scale and bias."""

    def plain(g: Array, x: Array, scale: Array, mean: Array, inverse: Array) -> list[Array | None]:
        axes = [0, *range(2, x.ndim)]
        centred, inverses = x - mean, reshape_like(inverse, scale)
        to_bias = op.ReduceSum(g, axes, keepdims=0)
        to_scale = op.ReduceSum(g * centred, axes, keepdims=0) * inverses
        to_x = None
        if n.needs[0]:
            # With x^ the normalised input: dx = scale/deviation (g - mean(g) - x^ mean(g x^)). All factors are
            # multiplied as vectors, and the normalisation itself serves to scale and shift the channels in one pass.
            gain = scale * inverses
            share = gain * (xp.astype(op.Size(scale), x.dtype) / xp.astype(op.Size(x), x.dtype))
            ones, zeros = xp.ones_like(scale), xp.zeros_like(scale)
            slope = to_scale * inverses * share
            shifted = op.BatchNormalization(centred, slope, to_bias * share, zeros, ones, epsilon=0.0)
            to_x = g * per_channel(gain, x) - shifted.with_shape(x.shape)
        return [to_x, to_scale if n.needs[1] else None, to_bias if n.needs[2] else None]

    return fused("BatchNormGrad", [g, n.x, n.input(1), mean, inverse], plain)


def _total(terms: list[Array]) -> Array | None:
    return sum(terms[1:], start=terms[0]) if terms else None


@rule("LayerNormalization")
def layer_normalization(n: Site, g: Array | None, *statistics: Array | None) -> list[Array | None]:
    """Over the axes from `axis` on; mean and deviation are computed again, which is cheaper than keeping them."""
    x = n.x
    axes = list(range(n.attr("axis", -1) % x.ndim, x.ndim))
    terms: list[Array] = []
    to_scale = to_bias = None
    if g is not None:
        to_x, to_scale, to_bias = _through_layer(n, g, axes)
        terms += [] if to_x is None else [to_x]
    to_mean, to_inverse = [*statistics, None, None][:2]
    if n.needs[0] and (to_mean is not None or to_inverse is not None):
        normed, inverse = _normed(x, axes, n.number("epsilon", 1e-5))
        share = xp.astype(op.Size(inverse), x.dtype) / xp.astype(op.Size(x), x.dtype)
        if to_mean is not None:
            terms.append(expand_like(xp.astype(to_mean, x.dtype) * share, x))
        if to_inverse is not None:
            terms.append(-normed * (xp.astype(to_inverse, x.dtype) * inverse * inverse * share))
    return [_total(terms), to_scale, to_bias]


def _through_layer(n: Site, g: Array, axes: list[int]) -> list[Array | None]:
    """What flows from the output to input, scale and bias."""
    epsilon = n.number("epsilon", 1e-5)

    def plain(g: Array, x: Array, scale: Array) -> list[Array | None]:
        normed, inverse = _normed(x, axes, epsilon)
        to_x = _through_normed(g * scale, normed, inverse, axes) if n.needs[0] else None
        to_scale = sum_like(g * normed, scale, x.shape) if n.needs[1] else None
        # A bias has the scale's shape where it has one like the normalised axes.
        to_bias = sum_like(g, n.input(2), x.shape) if n.has(2) and n.needs[2] else None
        return [to_x, to_scale, to_bias]

    x, scale = n.x, n.input(1)
    alike = all(v.shape == tuple(x.shape[axes[0] :]) and is_static(v.shape) for v in n.inputs[1:] if v is not None)
    if not alike:
        return plain(g, x, scale)
    return fused("LayerNormGrad", [g, x, scale], plain, axis=axes[0], epsilon=epsilon)


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
    """x / ‖x‖, of order 1 or 2 along one axis; 0 where the norm is 0, as the value is."""
    axis = [n.attr("axis", -1)]
    along = op.ReduceSum(g * n.y, axis, keepdims=1)
    first_order = n.attr("p", 2) == 1
    norm = (op.ReduceL1 if first_order else op.ReduceL2)(n.x, axis, keepdims=1)
    zero = indicator(norm == xp.zeros_like(norm), norm)
    direction = xp.sign(n.x) if first_order else n.y
    return (g - direction * along) * ((1.0 - zero) / (norm + zero))


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
