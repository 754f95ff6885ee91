"""Newer operators in models whose dimensions have names, against torch; and what cannot be said with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
import torch

from edgeopt.autodiff import backward
from edgeopt.canonical import canonicalize
from edgeopt.errors import UnsupportedModelError, UnsupportedOperatorError
from edgeopt.tracing import Tracer

SIZES = {"batch": 2, "queries": 3, "keys": 4}


@pytest.mark.parametrize("heads", [4, 2], ids=["multi-head", "grouped"])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(heads: int, causal: int, same_results: Callable[..., Any]) -> None:
    keys = "queries" if causal else "keys"
    text = f"""
    <ir_version: 10, opset_import: ["" : 23]>
    attend (float[batch, 4, queries, 3] q, float[batch, {heads}, {keys}, 3] k, float[batch, {heads}, {keys}, 5] v)
        => (float[batch, 4, queries, 5] y)
    {{ y = Attention<is_causal = {causal}>(q, k, v) }}
    """

    def reference(**arrays: Any) -> list[Any]:
        q, k, v = (torch.tensor(arrays[name]) for name in "qkv")
        return [
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=heads != 4)
        ]

    operators = same_results(text, sizes=SIZES, order=2, reference=reference)
    assert "Attention" not in operators


def test_attention_of_flat_heads_with_a_mask(same_results: Callable[..., Any]) -> None:
    """One query may attend to nothing: zeros come out, and no NaN goes back."""
    text = """
    <ir_version: 10, opset_import: ["" : 23]>
    attend (float[batch, queries, 8] q, float[batch, keys, 8] k, float[batch, keys, 8] v, bool[queries, keys] mask)
        => (float[batch, queries, 8] y)
    { y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, v, mask) }
    """
    mask = np.asarray([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0]], bool)

    def reference(q: Any, k: Any, v: Any, mask: Any) -> list[Any]:
        heads = [torch.tensor(x).unflatten(2, (2, 4)).transpose(1, 2) for x in (q, k, v)]
        kept = torch.tensor(mask)
        y = torch.nn.functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], attn_mask=kept)
        return [y.nan_to_num(0.0).transpose(1, 2).flatten(2)]

    same_results(text, {"mask": mask}, sizes=SIZES, order=2, reference=reference)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int, same_results: Callable[..., Any]) -> None:
    text = f"""
    <ir_version: 10, opset_import: ["" : 23]>
    turn (float[batch, queries, 12] x, float[10, 2] cos, float[10, 2] sin, int64[batch, queries] ids)
        => (float[batch, queries, 12] y)
    {{ y = RotaryEmbedding<num_heads = 2, rotary_embedding_dim = 4, interleaved = {interleaved}>(x, cos, sin, ids) }}
    """
    ids = np.asarray([[0, 1, 2], [5, 9, 5]])

    def reference(x: Any, cos: Any, sin: Any, ids: Any) -> list[Any]:
        heads = x.reshape(2, 3, 2, 6)
        first, second = (heads[..., 0:4:2], heads[..., 1:4:2]) if interleaved else (heads[..., :2], heads[..., 2:4])
        c, s = cos[ids][:, :, None], sin[ids][:, :, None]
        y = heads.copy()
        turned = (c * first - s * second, s * first + c * second)
        if interleaved:
            y[..., 0:4:2], y[..., 1:4:2] = turned
        else:
            y[..., :2], y[..., 2:4] = turned
        return [y.reshape(x.shape)]

    same_results(text, {"ids": ids}, sizes=SIZES, order=2, reference=reference)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", ["", ", queries"])
def test_cross_entropy(reduction: str, shape: str, same_results: Callable[..., Any]) -> None:
    text = f"""
    <ir_version: 9, opset_import: ["" : 20]>
    score (float[batch, 5{shape}] x, int64[batch{shape}] label, float[5] w) => (float[...] loss, float[...] log)
    {{ loss, log = SoftmaxCrossEntropyLoss<ignore_index = 1, reduction = "{reduction}">(x, label, w) }}
    """.replace("[...]", "[]" if reduction != "none" else f"[batch{shape}]", 1).replace("[...]", f"[batch, 5{shape}]")
    label = np.asarray([4, 1] if not shape else [[4, 1, 0], [2, 1, 4]])

    def reference(x: Any, label: Any, w: Any) -> list[Any]:
        logits = torch.tensor(x)
        loss = torch.nn.functional.cross_entropy(
            logits, torch.tensor(label), torch.tensor(w), ignore_index=1, reduction=reduction
        )
        return [loss, torch.log_softmax(logits, 1)]

    w = np.asarray([0.5, 1.0, 2.0, 0.3, 0.7], np.float32)
    same_results(text, {"label": label, "w": w}, sizes=SIZES, order=2, reference=reference)


@pytest.mark.parametrize("length", ["4", "keys"])
@pytest.mark.parametrize(("reverse", "exclusive"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_cumulative_products(length: str, reverse: int, exclusive: int, same_results: Callable[..., Any]) -> None:
    text = f"""
    <ir_version: 13, opset_import: ["" : 26]>
    multiply (float[batch, {length}, 3] x) => (float[batch, {length}, 3] y)
    <int64 axis = {{1}}> {{ y = CumProd<reverse = {reverse}, exclusive = {exclusive}>(x, axis) }}
    """
    x = np.random.default_rng(0).uniform(0.5, 1.5, (2, 4, 3)).astype(np.float32)
    x[0, 1, 0] = x[1, 0, 2] = x[1, 2, 2] = 0.0

    def reference(x: Any) -> list[Any]:
        turned = x[:, ::-1] if reverse else x
        if exclusive:
            turned = np.concatenate([np.ones_like(x[:, :1]), turned[:, :-1]], 1)
        y = np.cumprod(turned, 1)
        return [y[:, ::-1] if reverse else y]

    same_results(text, {"x": x}, sizes=SIZES, order=2 if length == "4" else 1, reference=reference)
    if length != "4":
        # Of a product over a number of elements that is not known, second derivatives at zeros are not.
        same_results(text, {"x": x + 0.5}, sizes=SIZES, order=2, reference=reference)


INVERSE = """
<ir_version: 9, opset_import: ["" : 20, "com.microsoft" : 1]>
invert (float[20, 20] x, float[20, 20] z) => (float[20, 20] y)
{
    inverse = com.microsoft.Inverse(x)
    y = MatMul(inverse, z)
}
"""


def test_what_a_decomposition_cannot_say_is_refused_with_its_reason() -> None:
    """Where nothing is trained in front of it, it stays."""
    model = canonicalize(onnx.parser.parse_model(INVERSE))
    tracer = Tracer(model.graph)
    (y,), (x, z) = model.graph.outputs, model.graph.inputs
    # Nobody knows what an operator of another domain computes, so its output gets its type by hand.
    inverse = next(node for node in model.graph if node.op_type == "Inverse").outputs[0]
    inverse.type, inverse.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([20, 20])
    assert backward(tracer, {y: tracer.wrap(y)}, [z])[0] is not None
    with pytest.raises(UnsupportedOperatorError, match=r"com\.microsoft::Inverse .* 16 rows at most"):
        backward(tracer, {y: tracer.wrap(y)}, [x])


def test_what_is_newer_than_the_target_is_refused_with_its_reason() -> None:
    text = """
    <ir_version: 13, opset_import: ["" : 26]>
    multiply (float[2, 4] x, int64 axis) => (float[2, 4] y)
    { y = CumProd(x, axis) }
    """
    with pytest.raises(UnsupportedModelError, match="is newer, and its axis is not known before the run"):
        canonicalize(onnx.parser.parse_model(text))
