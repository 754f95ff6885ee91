"""Normalisations."""

from __future__ import annotations

from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


@decomposition("GroupNormalization")
def group_normalization(n: Site) -> Array:
    """Layer normalisation within each group of channels, then one scale and bias for each channel.

    Opset 21 and later; before, scale and bias belonged to the groups, and an adapter repeats them.
    """
    groups = int(n.attr("num_groups"))
    # (batch, groups, elements of a group) whatever the rank; 0 copies the batch.
    grouped = op.Reshape(n.x, [0, groups, -1])
    mean = op.ReduceMean(grouped, [2], keepdims=1)
    centred = grouped - mean
    variance = op.ReduceMean(centred * centred, [2], keepdims=1)
    normal = op.Reshape(centred / op.Sqrt(variance + n.number("epsilon", 1e-5)), op.Shape(n.x))
    spatial = list(range(1, n.x.ndim - 1))
    scale, bias = (op.Unsqueeze(array, spatial) if spatial else array for array in (n.input(1), n.input(2)))
    return (normal * scale + bias).with_shape(n.x.shape)
