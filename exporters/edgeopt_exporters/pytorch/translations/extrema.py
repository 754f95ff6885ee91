"""Selections along an axis. PyTorch gives the gradient of one to the element at the index it returns, ties or not.

Over all axes, and in `amax` and `amin`, elements that tie share it, as in ONNX's reductions here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import onnx
import torch
from onnxscript import opset18

from edgeopt_exporters.pytorch.translations.rewriting import Rewrite
from edgeopt_exporters.pytorch.translations.surrogate import with_gradient_of

__all__ = ["REWRITES", "TRANSLATIONS"]

# Its type variables demand a type for each traced value, which translations do not have.
op: Any = opset18

_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def _selected(choose: Any, reduce: Any, self: Any, dim: int, keepdim: bool = False) -> Any:
    """`aten::max.dim` and `aten::min.dim`: the values at the first index of an extreme element."""
    if not self.shape:
        return op.Identity(self), op.Constant(value=onnx.helper.make_tensor("value", onnx.TensorProto.INT64, [], [0]))
    if self.dtype == onnx.TensorProto.BOOL:
        as_number = op.Cast(self, to=onnx.TensorProto.INT32)
        values, indices = _selected(choose, reduce, as_number, dim, keepdim)
        return op.Cast(values, to=onnx.TensorProto.BOOL), indices
    axes = op.Constant(value_ints=[dim])
    indices = choose(self, axis=dim, keepdims=1)
    values = op.GatherElements(self, indices, axis=dim) if self.dtype in _FLOATS else reduce(self, axes, keepdims=1)
    return (values, indices) if keepdim else (op.Squeeze(values, axes), op.Squeeze(indices, axes))


def _of_rank(self: torch.Tensor, dim: int, position: Any, keepdim: bool) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = (array.narrow(dim, position, 1) for array in torch.sort(self, dim=dim))
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def _kth_value(self: torch.Tensor, k: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """`aten::kthvalue`."""
    return _of_rank(self, dim, k - 1, keepdim)


def _median_along(self: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    """`aten::median.dim`: the lower one of two."""
    return _of_rank(self, dim, (self.shape[dim] - 1) // 2, keepdim)


def _median(self: torch.Tensor) -> torch.Tensor:
    """`aten::median`: elements that tie share the gradient."""
    flat = self.reshape(-1)
    value = torch.sort(flat).values.narrow(0, (flat.shape[0] - 1) // 2, 1).reshape(())
    equal = (flat == value).to(flat.dtype)
    return with_gradient_of(value, (flat * equal).sum() / equal.sum())


def _sort(self: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    """`aten::sort.stable`, which ONNX's order is."""
    return torch.sort(self, dim=dim, descending=descending)


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.max.dim: partial(_selected, op.ArgMax, op.ReduceMax),
    torch.ops.aten.min.dim: partial(_selected, op.ArgMin, op.ReduceMin),
}

REWRITES: dict[Any, Rewrite] = {
    torch.ops.aten.kthvalue.default: _kth_value,
    torch.ops.aten.median.dim: _median_along,
    torch.ops.aten.median.default: _median,
    torch.ops.aten.sort.stable: _sort,
}
