"""Rotary position embeddings. Source: Su et al., "RoFormer: enhanced transformer with rotary position embedding"."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.axes import positions
from edgeopt.tracing.site import Site

__all__ = ["rotate"]


def rotate(x: Array, cos: Array, sin: Array, *, width: int = 0, interleaved: bool = False) -> Array:
    """Turn pairs of features by angles.

    Args:
        x: (batch, heads, sequence, size), or (batch, sequence, heads, size).
        cos: Cosines, one for each pair, which broadcast to half of x.
        sin: Their sines.
        width: How many of the features are turned; 0 for all of them.
        interleaved: A pair is two neighbours; otherwise its elements are half a width apart.
    """
    rest: Array | None = None
    if width and width != x.shape[-1]:
        x, rest = _split(x, width)
    shape = x.shape
    if interleaved:
        # Neighbours become a last axis of their own.
        x = op.Reshape(x, [0, 0, 0, -1, 2]).with_shape((*shape[:3], None, 2))
        cos, sin = op.Unsqueeze(cos, [-1]), op.Unsqueeze(sin, [-1])
    first, second = x.tracer.emit("Split", x, axis=-1, num_outputs=2, outputs=2)
    turned = xp.concat([cos * first - sin * second, sin * first + cos * second], axis=-1)
    if interleaved:
        turned = op.Reshape(turned, [0, 0, 0, -1])
    turned = turned.with_shape(shape)
    return turned if rest is None else op.Concat(turned, rest, axis=-1)


def _split(x: Array, width: int) -> tuple[Array, Array]:
    """The first features and the rest."""
    last = x.ndim - 1
    return op.Slice(x, [0], [width], [last]), op.Slice(x, [width], [np.iinfo(np.int64).max], [last])


def _turned(n: Site, cos: Array, sin: Array, heads: int) -> Array:
    """The node's input, by angles of the shape (batch or 1, sequence, pairs)."""
    x, width, interleaved = n.x, int(n.attr("rotary_embedding_dim", 0)), bool(n.attr("interleaved", 0))
    if x.ndim == 4:
        return rotate(x, op.Unsqueeze(cos, [1]), op.Unsqueeze(sin, [1]), width=width, interleaved=interleaved)
    size = x.shape[2] // heads if isinstance(x.shape[2], int) else None
    split = op.Reshape(x, [0, 0, heads, -1]).with_shape((*x.shape[:2], heads, size))
    turned = rotate(split, op.Unsqueeze(cos, [2]), op.Unsqueeze(sin, [2]), width=width, interleaved=interleaved)
    return op.Reshape(turned, [0, 0, x.shape[2] if isinstance(x.shape[2], int) else -1]).with_shape(x.shape)


@decomposition("RotaryEmbedding")
def rotary_embedding(n: Site) -> Array:
    """By the angles given for each token, or those that a table has for its position."""
    cos, sin = n.input(1), n.input(2)
    if n.has(3):
        cos, sin = xp.take(cos, n.input(3), axis=0), xp.take(sin, n.input(3), axis=0)
    return _turned(n, cos, sin, int(n.attr("num_heads", 0)))


def _heads(n: Site) -> int:
    """Where heads are not counted, the whole of a head is turned, and its size is twice the table's width."""
    heads, width, pairs = int(n.attr("num_heads", 0)), n.x.shape[-1], n.input(2).shape[-1]
    if heads or n.x.ndim == 4 or not isinstance(width, int) or not isinstance(pairs, int):
        return heads
    return width // (2 * pairs)


def _problem(n: Site) -> str | None:
    if n.attr("is_packed_batching", 0):
        return "its batch is packed"
    if n.number("scale", 1.0) != 1.0:
        return "it has a scale, which ONNX Runtime does not define"
    return None if n.x.ndim == 4 or _heads(n) else "the number of its heads is not known"


@decomposition("com.microsoft::RotaryEmbedding", limits=_problem)
def microsoft_rotary_embedding(n: Site) -> Array:
    """The positions come first; a single one is that of the first token."""
    ids = n.input(1)
    if ids.ndim == 1:
        ids = op.Unsqueeze(ids + positions(n.x, 1 if n.x.ndim == 3 else 2), [0])
    cos, sin = (xp.take(n.input(position), ids, axis=0) for position in (2, 3))
    return _turned(n, cos, sin, _heads(n))
