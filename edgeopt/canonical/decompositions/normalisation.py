"""Normalisations."""

from __future__ import annotations

from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site

__all__ = ["normalized_in_groups"]


def normalized_in_groups(x: Array, scale: Array, bias: Array, groups: int, epsilon: float) -> Array:
    """Layer normalisation within each group of channels (axis 1), then one scale and bias for each channel."""
    # (batch, groups, elements of a group) whatever the rank; 0 copies the batch.
    grouped = op.Reshape(x, [0, groups, -1])
    mean = op.ReduceMean(grouped, [2], keepdims=1)
    centred = grouped - mean
    variance = op.ReduceMean(centred * centred, [2], keepdims=1)
    normal = op.Reshape(centred / op.Sqrt(variance + epsilon), op.Shape(x))
    spatial = list(range(1, x.ndim - 1))
    scale, bias = (op.Unsqueeze(array, spatial) if spatial else array for array in (scale, bias))
    return (normal * scale + bias).with_shape(x.shape)


@decomposition("GroupNormalization")
def group_normalization(n: Site) -> Array:
    """Opset 21 and later; before, scale and bias belonged to the groups, and an adapter repeats them."""
    return normalized_in_groups(n.x, n.input(1), n.input(2), int(n.attr("num_groups")), n.number("epsilon", 1e-5))
