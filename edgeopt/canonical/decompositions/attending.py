"""Attention as an array program, which the operators of that name share."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes

from edgeopt import tracing as xp
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import Dim

__all__ = ["Attended", "additive", "attend", "before_or_at", "floor_of", "join_heads", "split_heads"]


class Attended(NamedTuple):
    """What attention computes on its way; scores have the shape (batch, heads, queries, keys)."""

    values: Array
    scores: Array
    capped: Array
    biased: Array
    weights: Array


def split_heads(x: Array, heads: int) -> Array:
    """(batch, sequence, heads · size) as (batch, heads, sequence, size)."""
    width = x.shape[2]
    size = width // heads if isinstance(width, int) else None
    apart = op.Reshape(x, [0, 0, heads, size if size is not None else -1])
    return op.Transpose(apart, perm=[0, 2, 1, 3]).with_shape((x.shape[0], heads, x.shape[1], size))


def join_heads(x: Array) -> Array:
    """(batch, heads, sequence, size) as (batch, sequence, heads · size)."""
    batch, heads, sequence, size = x.shape
    width = heads * size if isinstance(heads, int) and isinstance(size, int) else None
    together = op.Reshape(op.Transpose(x, perm=[0, 2, 1, 3]), [0, 0, width if width is not None else -1])
    return together.with_shape((batch, sequence, width))


def floor_of(dtype: Any) -> float:
    """A score so low that its weight is 0; the sum of a few is still finite."""
    limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # it has no annotations
    return float(limits.min) / 8


def additive(mask: Array, dtype: Any, low: float | None = None) -> Array:
    """What is added to scores: 0 where the mask is true, a very low number elsewhere."""
    values = (mask.tracer.constant(number, dtype) for number in (0.0, floor_of(dtype) if low is None else low))
    return op.Where(mask, *values)


def before_or_at(queries: Array, keys: Array) -> Array:
    """Which key positions (…, keys) are not behind the query positions (…, queries)."""
    return op.Unsqueeze(keys, [-2]) <= op.Unsqueeze(queries, [-1])


def _grouped(x: Array, heads: int, shape: tuple[Dim, ...]) -> Array:
    """The heads in groups, the queries of a group one behind the other."""
    return op.Reshape(x, [0, heads, -1, 0]).with_shape(shape)


def attend(
    query: Array,
    key: Array,
    value: Array,
    *,
    scale: float | None,
    bias: Array | None = None,
    softcap: float = 0.0,
    precision: Any = None,
    may_be_empty: bool = False,
) -> Attended:
    """Each query's mean of the values, weighted by the softmax of its products with the keys.

    Args:
        query: (batch, heads, queries, size).
        key: (batch, key heads, keys, size); each is shared by a group of query heads, without being copied.
        value: (batch, key heads, keys, value size).
        scale: Of the products; 1/√size where it is None.
        bias: Added to the products after the cap; broadcast to (batch, heads, queries, keys).
        softcap: Products p become cap · tanh(p / cap), where the cap is not 0.
        precision: The type that the softmax is computed in.
        may_be_empty: A query may have no key that is not masked by the lowest bias; its weights are zero then.
    """
    batch, heads, queries, size = query.shape
    shared = key.shape[1]
    groups = (shared, heads) if isinstance(heads, int) and isinstance(shared, int) and heads != shared else None
    if scale is None:
        scale = float(size) ** -0.5 if isinstance(size, int) else None
    scaled = query * scale if scale is not None else query / xp.sqrt(_size(query))
    if groups:
        scaled = _grouped(scaled, groups[0], (batch, shared, None, size))
    scores = op.MatMul(scaled, op.Transpose(key, perm=[0, 1, 3, 2]))
    full = (batch, heads, queries, key.shape[2])
    scores = _grouped(scores, groups[1], full) if groups else scores.with_shape(full)
    capped = xp.tanh(scores * (1.0 / softcap)) * softcap if softcap else scores
    biased = (capped + bias).with_shape(full) if bias is not None else capped
    exact = biased if precision is None else xp.astype(biased, precision)
    weights = xp.astype(op.Softmax(exact, axis=-1), query.dtype).with_shape(full)
    chosen = _grouped(weights, groups[0], (batch, shared, None, key.shape[2])) if groups else weights
    values = op.MatMul(xp.astype(chosen, value.dtype), value)
    whole = (batch, heads, queries, value.shape[3])
    values = _grouped(values, groups[1], whole) if groups else values.with_shape(whole)
    if bias is not None and may_be_empty:
        keeps = op.ReduceMax(bias, [-1], keepdims=1) > floor_of(bias.dtype) / 2
        values = (values * xp.astype(keeps, values.dtype)).with_shape(whole)
        weights = (weights * xp.astype(keeps, weights.dtype)).with_shape(full)
    return Attended(values, scores, capped, biased, weights)


def _size(query: Array) -> Array:
    return xp.astype(op.Squeeze(op.Shape(query, start=3, end=4), [0]), query.dtype)
