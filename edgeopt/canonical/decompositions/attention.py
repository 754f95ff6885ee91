"""Attention of the standard domain (opset 23 and later)."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.canonical.decompositions.attending import (
    Attended,
    additive,
    attend,
    before_or_at,
    floor_of,
    join_heads,
    split_heads,
)
from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op, to_numpy_dtype
from edgeopt.tracing.axes import positions
from edgeopt.tracing.site import Site


@decomposition("Attention")
def attention(n: Site) -> list[Array]:
    """With grouped heads, masks, windows, a soft cap, and keys and values of the past."""
    query, key, value = (n.input(position) for position in range(3))
    flat = query.ndim == 3
    if flat:
        query = split_heads(query, int(n.attr("q_num_heads")))
        key, value = (split_heads(x, int(n.attr("kv_num_heads"))) for x in (key, value))
    if n.has(4):
        key, value = (xp.concat([past, x], axis=2) for past, x in ((n.input(4), key), (n.input(5), value)))
    bias = _bias(n, query, key)
    precision = n.attr("softmax_precision")
    found = attend(
        query,
        key,
        value,
        scale=n.attr("scale"),
        bias=bias,
        softcap=n.number("softcap", 0.0),
        precision=to_numpy_dtype(ir.DataType(precision)) if precision else None,
        may_be_empty=n.has(3) or n.has(6) or n.attr("left_window_size", -1) >= 0,
    )
    results = [join_heads(found.values) if flat else found.values, key, value]
    if len(n.node.outputs) > 3:
        mode = n.attr("qk_matmul_output_mode", 0)
        stages = (found.scores, found.capped, found.biased, found.weights)
        results.append(_with_infinities(found, bias) if mode == 2 else stages[mode])
    return results


def _with_infinities(found: Attended, bias: Array | None) -> Array:
    """The scores as they are written: masked ones are -∞."""
    if bias is None:
        return found.biased
    masked = bias <= floor_of(bias.dtype) / 2
    return op.Where(masked, bias.tracer.constant(-math.inf, bias.dtype), found.biased).with_shape(found.biased.shape)


def _bias(n: Site, query: Array, key: Array) -> Array | None:
    """What masks, windows and causality add to the scores."""
    allowed = _allowed(n, query, key)
    parts = [additive(mask, query.dtype) for mask in allowed]
    if n.has(3):
        mask = n.input(3)
        lowest = query.tracer.constant(floor_of(query.dtype), query.dtype)
        # Masks that say -∞ would make a softmax of nothing NaN.
        added = additive(mask, query.dtype) if mask.dtype == np.bool_ else op.Max(mask, lowest)
        parts.append(_up_to_length(added, key, lowest))
    if not parts:
        return None
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _allowed(n: Site, query: Array, key: Array) -> list[Array]:
    """Which pairs of query and key the node's own attributes allow, each broadcast to (batch, heads, query, key)."""
    left, right = n.attr("left_window_size", -1), n.attr("right_window_size", -1)
    keys = positions(key, 2)
    allowed = []
    if n.attr("is_causal", 0) or left >= 0 or right >= 0:
        at = _own_positions(n, query)
        if n.attr("is_causal", 0):
            allowed.append(before_or_at(at, keys))
        if right >= 0:
            allowed.append(before_or_at(at + np.int64(right), keys))
        if left >= 0:
            allowed.append(op.Unsqueeze(at, [-1]) <= op.Unsqueeze(keys + np.int64(left), [-2]))
    if n.has(6):
        # (batch, 1, 1, keys)
        allowed.append(keys < op.Unsqueeze(n.input(6), [1, 2, 3]))
    return allowed


def _own_positions(n: Site, query: Array) -> Array:
    """The queries' positions among the keys: behind the past, or at the end of what is valid."""
    at = positions(query, 2)
    if n.has(4):
        return at + op.Squeeze(op.Shape(n.input(4), start=2, end=3), [0])
    if n.has(6):
        behind = n.input(6) - op.Squeeze(op.Shape(query, start=2, end=3), [0])
        return at + op.Unsqueeze(behind, [1, 2])
    return at


def _up_to_length(mask: Array, key: Array, lowest: Array) -> Array:
    """A mask may be shorter than the keys; those that it does not mention are masked."""
    length, keys = mask.shape[-1], key.shape[2]
    if length in (1, keys) or not (isinstance(length, int) and isinstance(keys, int)):
        return mask
    pads = np.zeros(2 * mask.ndim, np.int64)
    pads[-1] = keys - length
    return op.Pad(mask, pads, lowest)
