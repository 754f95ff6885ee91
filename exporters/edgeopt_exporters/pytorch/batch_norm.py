"""BatchNorm in training mode, as torch means it.

torch's own exporter writes an inference-mode BatchNormalization even for a module in training mode, so the statistics
would never move. And ONNX's training-mode node updates the running variance with the batch's population variance, where
torch takes the unbiased one: the running statistics are therefore computed beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import torch
from onnxscript import opset18

__all__ = ["TRANSLATIONS"]

# Its type variables demand a type for each traced value, which translations do not have.
op: Any = opset18


def _training_batch_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """`aten::_native_batch_norm_legit_functional`: y, mean, deviation (not used), new running mean and variance."""
    # Every axis but the channels'; the same expressions as in the gradient rule, so that they are computed once.
    axes = op.Constant(value_ints=[axis for axis in range(len(x.shape)) if axis != 1])
    kept_mean = op.ReduceMean(x, axes, keepdims=1)
    centred = op.Sub(x, kept_mean)
    kept_variance = op.ReduceMean(op.Mul(centred, centred), axes, keepdims=1)
    channels = op.Shape(x, start=1, end=2)
    mean, variance = op.Reshape(kept_mean, channels), op.Reshape(kept_variance, channels)
    one = _scalar(1.0, x)
    if weight is None:
        weight = op.Expand(one, channels)
    if bias is None:
        bias = op.Sub(mean, mean)
    normalised, _, _ = op.BatchNormalization(
        x, weight, bias, mean, variance, epsilon=eps, momentum=1.0 - momentum, training_mode=1
    )
    if running_mean is None or running_var is None:
        return normalised, mean, variance, mean, variance
    count = op.CastLike(op.Div(op.Size(x), op.Size(mean)), x)
    # Of one value there is none; the lowering makes the output NaN then, but the statistics stay finite.
    unbiased = op.Mul(variance, op.Div(count, op.Max(op.Sub(count, one), one)))
    share = _scalar(momentum, x)
    new_mean = op.Add(running_mean, op.Mul(op.Sub(mean, running_mean), share))
    new_var = op.Add(running_var, op.Mul(op.Sub(unbiased, running_var), share))
    return normalised, mean, variance, new_mean, new_var


def _scalar(value: float, like: Any) -> Any:
    """A constant in the type of another tensor; written as a double, since float32 would lose digits of float64."""
    constant = onnx.helper.make_tensor("value", onnx.TensorProto.DOUBLE, [], [value])
    return op.CastLike(op.Constant(value=constant), like)


def _batch_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """`aten::_native_batch_norm_legit.no_stats`: no running statistics at all."""
    return _training_batch_norm(x, weight, bias, None, None, training, momentum, eps)[:3]


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._native_batch_norm_legit_functional.default: _training_batch_norm,
    torch.ops.aten._native_batch_norm_legit.no_stats: _batch_norm,
}
