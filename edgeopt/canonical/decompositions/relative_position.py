"""What attention adds to its scores for the distance between query and key."""

from __future__ import annotations

import math

import numpy as np

from edgeopt import tracing as xp
from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def _has_no_table(n: Site) -> str | None:
    known = isinstance(n.x.shape[0], int)
    return None if known else "the number of its buckets is not known before the run"


@decomposition("com.microsoft::RelativePositionBias", limits=_has_no_table)
def relative_position_bias(n: Site) -> Array:
    """A bias for each head and bucket of distances: small distances have buckets of their own, larger ones share.

    Source: Raffel et al., "Exploring the limits of transfer learning with a unified text-to-text transformer",
    section 2.1.
    """
    queries, keys = (_counted(n.input(position)) for position in (1, 2))
    distance = op.Unsqueeze(keys, [0]) - op.Unsqueeze(queries, [1])
    count = n.x.shape[0]
    buckets = count if isinstance(count, int) else 0
    offset: Array | None = None
    if n.attr("is_bidirectional", 0):
        buckets //= 2
        offset = xp.astype(distance > np.int64(0), np.int64) * np.int64(buckets)
        distance = xp.abs(distance)
    else:
        distance = op.Max(-distance, np.int64(0))
    exact = buckets // 2
    # Distances from `exact` on are spaced by their logarithm up to the largest.
    spacing = (buckets - exact) / math.log(int(n.attr("max_distance")) / exact)
    far = xp.astype(op.Max(distance, np.int64(exact)), np.float32)
    shared = xp.astype(xp.log(far * (1.0 / exact)) * spacing, np.int64) + np.int64(exact)
    bucket = op.Where(distance < np.int64(exact), distance, op.Min(shared, np.int64(buckets - 1)))
    chosen = op.Gather(n.x, bucket if offset is None else bucket + offset)
    return op.Unsqueeze(op.Transpose(chosen, perm=[2, 0, 1]), [0])


def _counted(length: Array) -> Array:
    """0, 1, … up to a length, which may be a vector of one element."""
    whole = xp.astype(op.Squeeze(length, [0]) if length.ndim else length, np.int64)
    zero, one = (length.tracer.constant(np.int64(number)) for number in (0, 1))
    return op.Range(zero, whole, one)


def _is_packed(n: Site) -> str | None:
    return "its batch is packed" if n.has(6) else None


@decomposition("com.microsoft::GatedRelativePositionBias", limits=_is_packed)
def gated_relative_position_bias(n: Site) -> Array:
    """A bias for each head, scaled by gates that each query computes. Source: Chi et al., "WavLM", equation 4."""
    heads = int(n.attr("num_heads"))
    query = op.Transpose(op.Reshape(n.x + n.input(1), [0, 0, heads, -1]), perm=[0, 2, 1, 3])
    # (batch, heads, sequence, 2 halves) after the sum over each half.
    gates = op.Reshape(op.MatMul(query, n.input(3)) + n.input(4), [0, 0, 0, 2, -1])
    update, reset = n.tracer.emit(
        "Split", op.Sigmoid(op.ReduceSum(gates, [-1], keepdims=0)), axis=-1, num_outputs=2, outputs=2
    )
    return (update * (reset * n.input(5) - 1.0) + 2.0) * n.input(2)
