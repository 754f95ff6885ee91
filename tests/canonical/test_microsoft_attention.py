"""Attention as ONNX Runtime's transformer optimizer writes it, and products with weights of a few bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

BATCH, QUERIES, KEYS, HEADS, SIZE = 2, 3, 4, 2, 4
WIDTH = HEADS * SIZE
KEPT = np.asarray([[1, 1, 0], [1, 1, 1]], np.int32)


def angles(positions: int, pairs: int) -> dict[str, Any]:
    turns = np.arange(positions)[:, None] / 100.0 ** (np.arange(pairs) / pairs)
    return {"cos": np.cos(turns).astype(np.float32), "sin": np.sin(turns).astype(np.float32)}


def lengths(*numbers: int) -> Any:
    return np.asarray(numbers, np.int32)


IDS = np.asarray([[0, 1, 2], [4, 2, 3]])
FLAT, APART = {"batched_x": (BATCH, QUERIES, WIDTH)}, {"batched_x": (BATCH, HEADS, QUERIES, SIZE)}
ROTARY: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = [
    ({**FLAT, "ids": IDS, **angles(10, 2)}, {"num_heads": HEADS}),
    ({**FLAT, "ids": IDS, **angles(10, 2)}, {"interleaved": 1}),
    ({**FLAT, "ids": np.asarray([2]), **angles(10, 1)}, {"num_heads": HEADS, "rotary_embedding_dim": 2}),
    ({**APART, "ids": IDS, **angles(10, 2)}, {"interleaved": 1}),
    ({**APART, "ids": np.asarray([2]), **angles(10, 2)}, {}),
]

INPUT = {"batched_x": (BATCH, QUERIES, 5), "w": (5, 3 * WIDTH), "b": (3 * WIDTH,)}
PACKED: list[tuple[Mapping[str, Any], Mapping[str, Any], int]] = [
    (INPUT, {}, 1),
    ({"batched_x": (BATCH, QUERIES, 5), "w": (5, 3 * WIDTH)}, {"scale": 0.3, "unidirectional": 1}, 1),
    ({**INPUT, "mask": KEPT}, {"unidirectional": 1}, 1),
    ({**INPUT, "mask": np.stack([np.tril(np.ones((3, 3), np.int32))] * 2)}, {"mask_filter_value": -100.0}, 1),
    ({**INPUT, "batched_mask": lengths(2, 3)}, {}, 1),
    ({**INPUT, "mask": None, "past": (2, BATCH, HEADS, 2, SIZE)}, {"unidirectional": 1}, 2),
    ({**INPUT, "mask": None, "past": None, "bias": (1, HEADS, QUERIES, QUERIES)}, {}, 1),
    (
        {"batched_x": (BATCH, QUERIES, 5), "w": (5, 2 * WIDTH + 6), "b": (2 * WIDTH + 6,)},
        {"qkv_hidden_sizes": [WIDTH, WIDTH, 6]},
        1,
    ),
]

SELF = dict.fromkeys(("batched_q", "batched_k", "batched_v"), (BATCH, QUERIES, WIDTH))
CROSS = {"batched_q": (BATCH, QUERIES, WIDTH), "batched_k": (BATCH, KEYS, WIDTH), "batched_v": (BATCH, KEYS, 6)}
PAST = {"batched_pk": (BATCH, HEADS, 2, SIZE), "batched_pv": (BATCH, HEADS, 2, SIZE)}
MASK = np.asarray([[1, 1, 0, 1], [1, 1, 1, 0]], np.int32)
PROJECTED: list[tuple[Mapping[str, Any], Mapping[str, Any], int]] = [
    (CROSS, {"scale": 0.2}, 1),
    ({**CROSS, "bias": (2 * WIDTH + 6,)}, {}, 1),
    ({**CROSS, "bias": None, "mask": MASK}, {}, 1),
    ({**CROSS, "bias": None, "batched_mask": lengths(3, 4)}, {}, 1),
    ({**CROSS, "bias": None, "mask": np.stack([MASK] * 3, axis=1)}, {}, 1),
    ({**CROSS, "bias": None, "mask": None, "added": (BATCH, 1, QUERIES, KEYS)}, {}, 1),
    ({**SELF, "bias": None, "mask": None, "added": None, **PAST}, {"unidirectional": 1}, 3),
    (
        {"batched_q": (BATCH, QUERIES, WIDTH), **{f"batched_{x}": (BATCH, HEADS, KEYS, SIZE) for x in "kv"}},
        {},
        4,
    ),
]

# ONNX Runtime turns heads whose size is a multiple of 16 only.
WIDE, SHARED = 4 * 16, 2 * 16
GROUPED = {
    "batched_q": (BATCH, QUERIES, WIDE),
    "batched_k": (BATCH, QUERIES, SHARED),
    "batched_v": (BATCH, QUERIES, SHARED),
}
FRESH = {"pk": None, "pv": None, "lengths": lengths(2, 2), "total": np.asarray(3, np.int32)}
CACHED = {
    **{name: (shape[0], 1, shape[2]) for name, shape in GROUPED.items()},
    "batched_pk": (BATCH, 2, 2, 16),
    "batched_pv": (BATCH, 2, 2, 16),
    "lengths": lengths(2, 2),
    "total": np.asarray(3, np.int32),
}
TURNED = {"do_rotary": 1}
GROUPS: list[tuple[Mapping[str, Any], Mapping[str, Any], int]] = [
    ({**GROUPED, **FRESH}, {"local_window_size": 2}, 3),
    ({**GROUPED, **FRESH, **angles(10, 8)}, TURNED, 3),
    ({**GROUPED, **FRESH, **angles(10, 8)}, {**TURNED, "rotary_interleaved": 1, "scale": 0.3, "softcap": 2.0}, 1),
    ({"batched_q": (BATCH, QUERIES, WIDE + 2 * SHARED), "k": None, "v": None, **FRESH}, {}, 3),
    ({**CACHED, **angles(10, 8)}, TURNED, 3),
    ({**GROUPED, **FRESH, "cos": None, "sin": None, "ids": None, "added": (1, 1, QUERIES, QUERIES)}, {}, 1),
]

ROWS: list[tuple[str, Mapping[str, Any], Mapping[str, Any], int]] = [
    *(("RotaryEmbedding", inputs, attributes, 1) for inputs, attributes in ROTARY),
    *(("Attention", inputs, {"num_heads": HEADS, **attributes}, count) for inputs, attributes, count in PACKED),
    *(("MultiHeadAttention", inputs, {"num_heads": HEADS, **rest}, count) for inputs, rest, count in PROJECTED),
    *(("GroupQueryAttention", inputs, {"num_heads": 4, "kv_num_heads": 2, **rest}, n) for inputs, rest, n in GROUPS),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_kernels_compute_the_same(row: Any, one_node: Callable[..., Any], same_results: Callable[..., Any]) -> None:
    operator, inputs, attributes, outputs = row
    model, values = one_node(f"com.microsoft::{operator}", inputs, attributes, outputs)
    same_results(model, values, order=1, tolerance=2e-5)


def attended(query: Any, key: Any, value: Any) -> Any:
    """torch's, of (batch, sequence, heads, size)."""
    q, k, v = (torch.tensor(x).transpose(1, 2) for x in (query, key, value))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def test_packed_projections(one_node: Callable[..., Any], same_results: Callable[..., Any]) -> None:
    """Of other providers than the CPU's."""
    operator, attributes = "com.microsoft::MultiHeadAttention", {"num_heads": HEADS}
    model, values = one_node(operator, {"batched_x": (BATCH, QUERIES, HEADS, 3, SIZE)}, attributes)
    same_results(
        model, values, order=1, reference=lambda batched_x: [attended(*(batched_x[:, :, :, i] for i in range(3)))]
    )
    inputs = {"batched_q": (BATCH, QUERIES, WIDTH), "batched_kv": (BATCH, KEYS, HEADS, 2, SIZE)}
    model, values = one_node(operator, inputs, attributes)

    def reference(batched_q: Any, batched_kv: Any) -> list[Any]:
        query = batched_q.reshape(BATCH, QUERIES, HEADS, SIZE)
        return [attended(query, batched_kv[:, :, :, 0], batched_kv[:, :, :, 1])]

    same_results(model, values, order=1, reference=reference)


def random_bytes(*shape: int) -> Any:
    return np.random.default_rng(1).integers(0, 256, shape, np.uint8)


def positive(*shape: int) -> Any:
    return np.random.default_rng(2).uniform(0.1, 1.0, shape).astype(np.float32)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("points", ["none", "packed", "floats"])
def test_weights_of_a_few_bits_pass_the_gradient(
    bits: int, points: str, one_node: Callable[..., Any], same_results: Callable[..., Any]
) -> None:
    if (bits, points) == (8, "floats"):
        points = "packed"  # which is all that ONNX Runtime has for bytes
    inputs: dict[str, Any] = {"batched_a": (2, 3, 40), "w": random_bytes(5, 3, 2 * bits), "scales": positive(5, 3)}
    if points != "none":
        inputs["points"] = random_bytes(5, -(-3 * bits // 8)) if points == "packed" else positive(5, 3)
    model, values = one_node("com.microsoft::MatMulNBits", inputs, {"N": 5, "K": 40, "block_size": 16, "bits": bits})
    same_results(model, values, order=1, tolerance=2e-4)


@pytest.mark.parametrize("kind", [0, 1], ids=["fp4", "nf4"])
def test_four_bit_floats_pass_the_gradient(
    kind: int, one_node: Callable[..., Any], same_results: Callable[..., Any]
) -> None:
    inputs = {"batched_a": (2, 16), "w": random_bytes(24), "largest": positive(3)}
    model, values = one_node(
        "com.microsoft::MatMulBnb4", inputs, {"N": 3, "K": 16, "block_size": 16, "quant_type": kind}
    )
    same_results(model, values, order=1, tolerance=1e-4)
