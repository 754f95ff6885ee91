"""The attention operators that ONNX Runtime's transformer optimizer writes."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.canonical.decompositions.attending import (
    Attended,
    additive,
    attend,
    before_or_at,
    join_heads,
    split_heads,
)
from edgeopt.canonical.decompositions.root_mean_square import by_root_mean_square
from edgeopt.canonical.decompositions.rotary import rotate
from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.axes import positions
from edgeopt.tracing.site import Site

_FILTER = -10000.0


def _scale(n: Site) -> float | None:
    """A scale of 0 stands for the usual one."""
    return float(n.attr("scale", 0.0)) or None


def _heads_apart(x: Array, heads: int) -> Array:
    """(batch, sequence, width) split into heads; what has four dimensions is split already."""
    return x if x.ndim == 4 else split_heads(x, heads)


def _masked(n: Site, position: int, query: Array, key: Array) -> list[Array]:
    """What a mask of integers adds: one for each key, or for each query and key, or the lengths of the sequences."""
    if not n.has(position):
        return []
    mask, low = n.input(position), n.number("mask_filter_value", _FILTER)
    if mask.ndim == 1:
        kept = op.Unsqueeze(positions(key, 2), [0]) < op.Unsqueeze(xp.astype(mask, np.int64), [1])
    else:
        kept = mask != np.zeros((), mask.dtype)
    return [additive(op.Unsqueeze(kept, [1, 2] if kept.ndim == 2 else [1]), query.dtype, low)]


def _causal(n: Site, query: Array, key: Array, past: Array | None) -> list[Array]:
    if not n.attr("unidirectional", 0):
        return []
    at = positions(query, 2)
    if past is not None:
        at = at + op.Squeeze(op.Shape(past, start=2, end=3), [0])
    return [additive(before_or_at(at, positions(key, 2)), query.dtype)]


def _sum(parts: list[Array]) -> Array | None:
    total = parts[0] if parts else None
    for part in parts[1:]:
        total = part if total is None else total + part
    return total


def _mask_problem(n: Site, position: int, batch: object) -> str | None:
    if not n.has(position):
        return None
    mask = n.input(position)
    if mask.ndim == 4:
        return "its mask is that of another decoder"
    # Vectors of 2 or 3 numbers for each sequence say where it begins, too.
    return None if mask.ndim > 1 or mask.shape[0] == batch else "its mask is a vector that is not one of lengths"


def _attention_problem(n: Site) -> str | None:
    if n.has(6) or n.attr("past_present_share_buffer", 0):
        return "its past is a buffer that is longer than what it holds"
    if n.attr("do_rotary", 0):
        return "it turns its features by angles that it does not say"
    return _mask_problem(n, 3, n.x.shape[0])


@decomposition("com.microsoft::Attention", limits=_attention_problem)
def attention(n: Site) -> list[Array]:
    """The projections of query, key and value lie side by side in one matrix."""
    heads = int(n.attr("num_heads"))
    projected = op.MatMul(n.x, n.input(1))
    if n.has(2):
        projected = projected + n.input(2)
    sizes = n.attr("qkv_hidden_sizes")
    parts = (
        n.tracer.emit("Split", projected, list(sizes), axis=-1, outputs=3)
        if sizes
        else n.tracer.emit("Split", projected, axis=-1, num_outputs=3, outputs=3)
    )
    query, key, value = (split_heads(part, heads) for part in parts)
    past = None
    if n.has(4):
        # (2, batch, heads, past, size)
        past, past_value = (
            op.Squeeze(half, [0]) for half in n.tracer.emit("Split", n.input(4), num_outputs=2, outputs=2)
        )
        key, value = xp.concat([past, key], axis=2), xp.concat([past_value, value], axis=2)
    bias = [*_masked(n, 3, query, key), *_causal(n, query, key, past)]
    if n.has(5):
        bias.append(n.input(5))
    found = attend(query, key, value, scale=_scale(n), bias=_sum(bias))
    # Where they are not kept, the values may have another width than the keys.
    kept = [xp.stack([key, value], axis=0)] if len(n.node.outputs) > 1 else []
    return [join_heads(found.values), *kept]


def _multi_head_problem(n: Site) -> str | None:
    if n.has(8) or n.has(9):
        return "its past is a buffer that is longer than what it holds"
    return _mask_problem(n, 4, n.x.shape[0])


def _projections(n: Site, heads: int) -> tuple[Array, Array, Array]:
    """Query, key and value, packed or not, with their biases, split into heads."""
    if n.x.ndim == 5:
        # (batch, sequence, heads, 3, size)
        parts = n.tracer.emit("Split", op.Transpose(n.x, perm=[3, 0, 2, 1, 4]), num_outputs=3, outputs=3)
        query, key, value = (op.Squeeze(part, [0]) for part in parts)
    elif n.input(1).ndim == 5:
        halves = n.tracer.emit("Split", op.Transpose(n.input(1), perm=[3, 0, 2, 1, 4]), num_outputs=2, outputs=2)
        key, value = (op.Squeeze(half, [0]) for half in halves)
        query = split_heads(n.x, heads)
    else:
        query, key, value = (_heads_apart(n.input(position), heads) for position in range(3))
    if not n.has(3):
        return query, key, value
    widths = [_width(x) for x in (query, key, value)]
    biases = n.tracer.emit("Split", n.input(3), widths, axis=0, outputs=3)
    # (heads, 1, size), to meet (batch, heads, sequence, size)
    shaped = [op.Reshape(bias, [heads, 1, -1]) for bias in biases]
    return query + shaped[0], key + shaped[1], value + shaped[2]


def _width(x: Array) -> int:
    heads, size = x.shape[1], x.shape[3]
    return heads * size if isinstance(heads, int) and isinstance(size, int) else 0


@decomposition("com.microsoft::MultiHeadAttention", limits=_multi_head_problem)
def multi_head_attention(n: Site) -> tuple[Array, Array, Array, Array]:
    """Of projections."""
    query, key, value = _projections(n, int(n.attr("num_heads")))
    past = None
    if n.has(6):
        past = n.input(6)
        key, value = xp.concat([past, key], axis=2), xp.concat([n.input(7), value], axis=2)
    bias = [*_masked(n, 4, query, key), *_causal(n, query, key, past)]
    if n.has(5):
        bias.append(n.input(5))
    found = attend(query, key, value, scale=_scale(n), bias=_sum(bias))
    return join_heads(found.values), key, value, found.biased


def _grouped_problem(n: Site) -> str | None:
    if n.attr("sliding_window_cache", 0):
        return "its cache holds a window only"
    if n.attr("k_quant_type", "NONE") != "NONE" or n.attr("v_quant_type", "NONE") != "NONE":
        return "its cache is quantized"
    if n.attr("smooth_softmax", -1) > 0 or n.has(11):
        return "its softmax has a sink"
    return "its queries are padded" if n.has(16) else None


@decomposition("com.microsoft::GroupQueryAttention", limits=_grouped_problem)
def group_query_attention(n: Site) -> tuple[Array, Array, Array, Array]:
    """Causal attention whose heads share keys and values.

    The past is taken to be full: every sequence of a batch has as many keys in it as it is long. Sequences that are
    padded behind compute the same as in ONNX Runtime up to their ends, and something else in the padding.
    """
    heads, shared = int(n.attr("num_heads")), int(n.attr("kv_num_heads"))
    query, key, value = _grouped_projections(n, heads, shared)
    if n.has(14):
        epsilon = n.number("qk_norm_epsilon", 1e-6)
        query = by_root_mean_square(query, n.input(14), -1, n.number("q_norm_epsilon", epsilon))[0]
        key = by_root_mean_square(key, n.input(15), -1, n.number("k_norm_epsilon", epsilon))[0]
    at = positions(query, 2)
    if n.has(3):
        at = at + op.Squeeze(op.Shape(n.input(3), start=2, end=3), [0])
    if n.attr("do_rotary", 0):
        ids = n.input(9) if n.has(9) else op.Unsqueeze(at, [0])
        cos, sin = (op.Unsqueeze(xp.take(n.input(position), ids, axis=0), [1]) for position in (7, 8))
        width, interleaved = 2 * _pairs(cos), bool(n.attr("rotary_interleaved", 0))
        query, key = (rotate(x, cos, sin, width=width, interleaved=interleaved) for x in (query, key))
    if n.has(3):
        key, value = xp.concat([n.input(3), key], axis=2), xp.concat([n.input(4), value], axis=2)
    bias = []
    keys, window = positions(key, 2), n.attr("local_window_size", -1)
    if n.attr("causal", 1):
        bias.append(additive(before_or_at(at, keys), query.dtype))
    if window > 0:
        # The window counts the query itself.
        bias.append(additive(op.Unsqueeze(at, [-1]) < op.Unsqueeze(keys + np.int64(window), [-2]), query.dtype))
    if n.has(10):
        bias.append(n.input(10))
    found = attend(query, key, value, scale=_scale(n), bias=_sum(bias), softcap=n.number("softcap", 0.0))
    return join_heads(found.values), key, value, _asked(n, found)


def _grouped_projections(n: Site, heads: int, shared: int) -> tuple[Array, Array, Array]:
    if n.has(1):
        return split_heads(n.x, heads), split_heads(n.input(1), shared), split_heads(n.input(2), shared)
    together = split_heads(n.x, heads + 2 * shared)
    query, key, value = n.tracer.emit("Split", together, [heads, shared, shared], axis=1, outputs=3)
    return query, key, value


def _pairs(cos: Array) -> int:
    pairs = cos.shape[-1]
    return pairs if isinstance(pairs, int) else 0


def _asked(n: Site, found: Attended) -> Array:
    return found.weights if n.attr("qk_output", 0) == 2 else found.capped
