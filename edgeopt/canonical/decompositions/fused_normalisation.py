"""Normalisations that optimizers have fused with what stands in front of them."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.canonical.decompositions.activations import sigmoid_gated
from edgeopt.canonical.decompositions.normalisation import normalized_in_groups
from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


@decomposition("com.microsoft::SkipLayerNormalization")
def skip_layer_normalization(n: Site) -> tuple[Array, Array, Array, Array]:
    """Of a sum, which is the last output."""
    total = n.x + n.input(1)
    if n.has(4):
        total = total + n.input(4)
    bias = n.input(3) if n.has(3) else None
    y, mean, inverse = n.tracer.emit(
        "LayerNormalization", total, n.input(2), bias, epsilon=n.number("epsilon", 1e-12), outputs=3
    )
    return y, mean, inverse, total


@decomposition("com.microsoft::EmbedLayerNormalization")
def embed_layer_normalization(n: Site) -> tuple[Array, Array, Array]:
    """Words, positions and segments looked up, added and normalised; also how many words are not masked."""
    ids = n.x
    if n.has(8):
        places = xp.take(n.input(3), n.input(8), axis=0)
    else:
        # The first rows of the table, as many as there are words.
        places = op.Slice(n.input(3), [0], op.Shape(ids, start=1, end=2), [0])
        places = places.with_shape((ids.shape[1], n.input(3).shape[1]))
    total = xp.take(n.input(2), ids, axis=0) + places
    if n.has(1):
        total = total + xp.take(n.input(4), n.input(1), axis=0)
    y = op.LayerNormalization(total, n.input(5), n.input(6), epsilon=n.number("epsilon", 1e-12))
    if n.has(7):
        counts = op.ReduceSum(xp.astype(n.input(7), np.int32), [1], keepdims=0)
    else:
        counts = xp.astype(op.ReduceSum(ids * np.zeros((), ids.dtype), [1], keepdims=0), np.int32)
    return y, counts, total


def _group_norm(n: Site, x: Array) -> Array:
    """Channels last unless the node says otherwise, and a SiLU behind it where it asks for one."""
    last = bool(n.attr("channels_last", 1))
    front = op.Transpose(x, perm=[0, x.ndim - 1, *range(1, x.ndim - 1)]) if last else x
    scale, bias = (xp.astype(n.input(position), x.dtype) for position in (1, 2))
    y = normalized_in_groups(front, scale, bias, int(n.attr("groups")), n.number("epsilon", 1e-5))
    if n.attr("activation", 0):
        y = sigmoid_gated(y)
    return op.Transpose(y, perm=[0, *range(2, x.ndim), 1]) if last else y


@decomposition("com.microsoft::GroupNorm")
def group_norm(n: Site) -> Array:
    """Of images."""
    return _group_norm(n, n.x)


@decomposition("com.microsoft::SkipGroupNorm")
def skip_group_norm(n: Site) -> tuple[Array, Array]:
    """Of a sum, which is the other output; what is added may be one row for each image."""
    skip = n.input(3)
    if skip.ndim == 2:
        skip = op.Unsqueeze(skip, [1, 2] if n.attr("channels_last", 1) else [2, 3])
    total = n.x + skip
    if n.has(4):
        total = total + n.input(4)
    return _group_norm(n, total), total
