"""scaled_dot_product_attention in few nodes, with its dropout.

torch's own translation takes four-dimensional operands only, writes dropout without its training flag (which means
switched off), scales both operands, and transposes the keys by way of shapes computed at run time. And where a boolean
mask hides every key from a query, its way to the zeros that PyTorch returns leads through NaN, which gradients keep; a
float mask of -∞ has no such way at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx
import torch
from onnxscript import opset18

from edgeopt_exporters.pytorch.translations.numbers import like

__all__ = ["TRANSLATIONS"]

# Its type variables demand a type for each traced value, which translations do not have.
op: Any = opset18


def _hidden(array: Any) -> Any:
    """Far below any logit, and far enough from the smallest number that adding a logit to it does not overflow."""
    return like(-1e4 if array.dtype == onnx.TensorProto.FLOAT16 else -1e30, array)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`aten::scaled_dot_product_attention`: softmax(q kᵀ · scale + mask) v over (…, heads, length, features)."""
    rank = len(key.shape)
    if enable_gqa:
        key, value = _repeat_heads(key, query), _repeat_heads(value, query)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    # A query without the leading axes of the keys is the same for all.
    order = list(range(rank))
    order[-1], order[-2] = order[-2], order[-1]
    logits = op.MatMul(op.Mul(query, like(scale, query)), op.Transpose(key, perm=order))
    visible = _causal_mask(query, key) if is_causal else attn_mask
    sees_any = None
    if visible is not None:
        if is_causal or visible.dtype == onnx.TensorProto.BOOL:
            added = op.Where(visible, like(0.0, query), _hidden(query))
        else:
            infinite = op.Equal(visible, like(-math.inf, query))
            added, visible = op.Where(infinite, _hidden(query), visible), op.Not(infinite)
        logits = op.Add(logits, added)
        if not is_causal:
            # Where all keys are hidden from a query, PyTorch's result is zero.
            counted = op.ReduceMax(
                op.Cast(visible, to=onnx.TensorProto.FLOAT), op.Constant(value_ints=[-1]), keepdims=1
            )
            sees_any = op.CastLike(counted, query)
    weights = op.Softmax(logits, axis=-1)
    if dropout_p > 0:
        weights, _ = op.Dropout(weights, like(dropout_p, weights), op.Constant(value=_TRUE))
    result = op.MatMul(weights, value)
    return result if sees_any is None else op.Mul(result, sees_any)


_TRUE = onnx.helper.make_tensor("value", onnx.TensorProto.BOOL, [], [True])


def _causal_mask(query: Any, key: Any) -> Any:
    """Query i sees keys 0 to i."""
    lengths = op.Concat(op.Shape(query, start=-2, end=-1), op.Shape(key, start=-2, end=-1), axis=0)
    return op.Trilu(op.Expand(op.Constant(value=_TRUE), lengths), upper=0)


def _repeat_heads(array: Any, query: Any) -> Any:
    """Each head of a grouped key or value once for every query head that shares it."""
    heads, shared = query.shape[-3], array.shape[-3]
    if heads == shared:
        return array
    axis = len(array.shape) - 2
    ones = op.Constant(value_ints=[1] * (axis - 1) + [1])
    times = op.Constant(value_ints=[heads // shared])
    tail = op.Constant(value_ints=[1, 1])
    copies = op.Expand(op.Unsqueeze(array, op.Constant(value_ints=[axis])), op.Concat(ones, times, tail, axis=0))
    leading = op.Shape(array, start=0, end=axis - 1)
    return op.Reshape(copies, op.Concat(leading, op.Constant(value_ints=[heads]), op.Shape(array, start=axis), axis=0))


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.scaled_dot_product_attention.default: _attention,
}
