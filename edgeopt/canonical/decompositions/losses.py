"""The losses of the standard domain; the class axis is the second."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


@decomposition("NegativeLogLikelihoodLoss")
def negative_log_likelihood(n: Site) -> Array:
    """Of logarithms of probabilities."""
    return _loss(n, n.x)


@decomposition("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(n: Site) -> tuple[Array, Array]:
    """Of logits; the logarithms of the probabilities are the other output."""
    log_probabilities = op.LogSoftmax(n.x, axis=1)
    return _loss(n, log_probabilities), log_probabilities


def _loss(n: Site, scores: Array) -> Array:
    """Minus the score of each label, weighted by its class; the mean is that of the weights, too.

    A label that is no class, and `ignore_index`, cost and weigh nothing. The one-hot mask is a comparison, because
    few GPU and NPU providers have OneHot, or gathers with a gradient.
    """
    label = op.Unsqueeze(n.input(1), [1])
    one_hot = label == _classes(scores, label.dtype)
    ignored = n.attr("ignore_index")
    if ignored is not None:
        one_hot = one_hot & (label != np.asarray(ignored, label.dtype))

    def of_label(values: Array) -> Array:
        # A selection and no product: a class that is not the label may have the score -∞.
        zero = xp.astype(scores.tracer.constant(0.0, np.float32), values.dtype)
        return op.ReduceSum(op.Where(one_hot, values, zero), [1], keepdims=0).with_shape(n.input(1).shape)

    loss = -of_label(scores)
    spatial = list(range(1, scores.ndim - 1))
    weight = None
    if n.has(2):
        weight = of_label(op.Unsqueeze(n.input(2), [0, *(axis + 1 for axis in spatial)]))
        loss = loss * weight
    reduction = n.attr("reduction", "mean")
    if reduction == "none":
        return loss
    total = op.ReduceSum(loss, keepdims=0)
    if reduction == "sum":
        return total
    if weight is None and ignored is None:
        return op.ReduceMean(loss, keepdims=0)
    if weight is None:
        weight = of_label(xp.ones_like(scores))
    return total / op.ReduceSum(weight, keepdims=0)


def _classes(scores: Array, dtype: np.dtype[np.generic]) -> Array:
    """0, 1, … along the second axis."""
    count = scores.shape[1]
    shape = [-1] + [1] * (scores.ndim - 2)
    if isinstance(count, int):
        return scores.tracer.constant(np.arange(count, dtype=dtype).reshape(shape))
    zero, one = (scores.tracer.constant(np.int64(number)) for number in (0, 1))
    length = op.Squeeze(op.Shape(scores, start=1, end=2), [0])
    return xp.astype(op.Reshape(op.Range(zero, length, one), shape), dtype)
