"""Attention whose memory is one matrix for each head (opset 27)."""

from __future__ import annotations

from edgeopt import tracing as xp
from edgeopt.canonical.decompositions.attending import join_heads, split_heads
from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site

# Its steps are written out, one after the other.
_LONGEST = 128


def _problem(n: Site) -> str | None:
    length = n.x.shape[1]
    known = isinstance(length, int) and length <= _LONGEST
    return None if known else f"its sequences are not known to have {_LONGEST} tokens at most"


@decomposition("LinearAttention", limits=_problem)
def linear_attention(n: Site) -> tuple[Array, Array]:
    """Each token adds the product of its key and its value to the memory, which decays, and reads with its query.

    By the delta rules a token first takes back what the memory has for its key. Source: Yang et al., "Gated delta
    networks: improving Mamba2 with delta rule".
    """
    heads, shared = int(n.attr("q_num_heads")), int(n.attr("kv_num_heads"))
    update = n.attr("update_rule", "gated_delta")
    query, key, value = split_heads(n.x, heads), split_heads(n.input(1), shared), split_heads(n.input(2), shared)
    size, length = query.shape[3], n.x.shape[1]
    scale = n.number("scale", 0.0) or float(size if isinstance(size, int) else 1) ** -0.5
    # (batch, shared heads, group, tokens, size)
    grouped = op.Reshape(query * scale, [0, shared, heads // shared, length if isinstance(length, int) else -1, -1])
    decay = xp.exp(_per_head(n, 4, shared)) if "gated" in update else None
    beta = _per_head(n, 5, shared) if "delta" in update else None
    memory = n.input(3) if n.has(3) else None
    outputs = []
    for t in range(length if isinstance(length, int) else 0):
        now = [t], [t + 1]
        k = op.Transpose(op.Slice(key, *now, [2]), perm=[0, 1, 3, 2])
        v = op.Slice(value, *now, [2])
        if memory is not None and decay is not None:
            memory = memory * op.Transpose(op.Slice(decay, *now, [2]), perm=[0, 1, 3, 2])
        if beta is not None:
            known = op.MatMul(op.Transpose(k, perm=[0, 1, 3, 2]), memory) if memory is not None else None
            v = (v if known is None else v - known) * op.Slice(beta, *now, [2])
        added = op.MatMul(k, v)
        memory = added if memory is None else memory + added
        asked = op.Squeeze(op.Slice(grouped, *now, [3]), [3])
        outputs.append(op.Unsqueeze(op.MatMul(asked, memory), [3]))
    together = op.Concat(*outputs, axis=3)
    # (batch, shared heads, group, tokens, value size) to (batch, heads, tokens, value size)
    whole = op.Reshape(together, [0, heads, length if isinstance(length, int) else -1, -1])
    whole = whole.with_shape((n.x.shape[0], heads, length, value.shape[3]))
    return join_heads(whole), memory if memory is not None else xp.zeros_like(key)


def _per_head(n: Site, position: int, shared: int) -> Array:
    """(batch, tokens, heads · size) with the heads in front; one number for all heads stays so."""
    x = n.input(position)
    return split_heads(x, 1 if x.shape[2] == 1 else shared)
