"""BatchNorm in training mode, as torch means it.

torch's own exporter writes an inference-mode BatchNormalization even for a module in training mode, so the statistics
would never move. And ONNX's training-mode node updates the running variance with the batch's population variance, where
torch takes the unbiased one: the running statistics are therefore computed beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from onnxscript import opset18
from torch.nn.modules.batchnorm import _BatchNorm

from edgeopt_exporters.pytorch.translations.numbers import like

__all__ = ["TRANSLATIONS", "cumulative_averages"]

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
    one = like(1.0, x)
    if weight is None:
        weight = op.Expand(one, channels)
    if bias is None:
        bias = op.Sub(mean, mean)
    tracked = running_mean is not None and running_var is not None
    # In training mode the node does not normalise by the running statistics, but it says which ones are its own.
    normalised, _, _ = op.BatchNormalization(
        x,
        weight,
        bias,
        running_mean if tracked else mean,
        running_var if tracked else variance,
        epsilon=eps,
        momentum=1.0 - momentum,
        training_mode=1,
    )
    if not tracked:
        return normalised, mean, variance, mean, variance
    count = op.CastLike(op.Div(op.Size(x), op.Size(mean)), x)
    # Of one value there is none; the lowering makes the output NaN then, but the statistics stay finite.
    unbiased = op.Mul(variance, op.Div(count, op.Max(op.Sub(count, one), one)))
    share = like(momentum, x)
    new_mean = op.Add(running_mean, op.Mul(op.Sub(mean, running_mean), share))
    new_var = op.Add(running_var, op.Mul(op.Sub(unbiased, running_var), share))
    return normalised, mean, variance, new_mean, new_var


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


@contextmanager
def cumulative_averages() -> Iterator[None]:
    """Within it, a BatchNorm without momentum counts its batches in the graph; torch counts them in Python."""
    original = _BatchNorm.forward

    def forward(self: _BatchNorm, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # torch's name
        mean, variance, count = self.running_mean, self.running_var, self.num_batches_tracked
        if self.momentum is not None or not self.training or mean is None or variance is None or count is None:
            return original(self, input)
        self._check_input_dim(input)  # type: ignore[no-untyped-call]  # it has no annotations
        count.add_(1)
        values = input.detach().transpose(0, 1).flatten(1)
        average = values.mean(1)
        spread = (values - average.unsqueeze(1)).square().sum(1) / (values.shape[1] - 1)
        share = 1.0 / count.to(mean.dtype)
        for running, new in ((mean, average), (variance, spread)):
            running.copy_(running * (1.0 - share) + new.to(running.dtype) * share)
        return torch.nn.functional.batch_norm(input, None, None, self.weight, self.bias, True, 0.0, self.eps)

    _BatchNorm.forward = forward  # type: ignore[method-assign]  # for the while
    try:
        yield
    finally:
        _BatchNorm.forward = original  # type: ignore[method-assign]  # see above


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._native_batch_norm_legit_functional.default: _training_batch_norm,
    torch.ops.aten._native_batch_norm_legit.no_stats: _batch_norm,
}
