"""Dropout with its ratio in full: torch's own translation rounds it to float32, which moves the scale of what stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import torch
from onnxscript import opset18

__all__ = ["TRANSLATIONS"]

# Its type variables demand a type for each traced value, which translations do not have.
op: Any = opset18


def _dropout(x: Any, p: float, train: bool | None = True) -> tuple[Any, Any]:
    """`aten::native_dropout`: what stays, and where."""
    ratio = op.Constant(value=onnx.helper.make_tensor("value", onnx.TensorProto.DOUBLE, [], [p]))
    training = op.Constant(value=onnx.helper.make_tensor("value", onnx.TensorProto.BOOL, [], [train is not False]))
    kept, mask = op.Dropout(x, ratio, training)
    return kept, mask


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.native_dropout.default: _dropout,
}
