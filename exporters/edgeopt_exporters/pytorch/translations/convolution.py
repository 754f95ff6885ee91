"""Convolutions without a bias.

torch's own translation adds a bias of zeros; for three dimensions in a shape that ONNX Runtime refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnxscript import opset18

__all__ = ["TRANSLATIONS"]

# Its type variables demand a type for each traced value, which translations do not have.
op: Any = opset18


def _convolution(
    input: Any,  # noqa: A002  # torch passes some arguments by their names in the schema
    weight: Any,
    bias: Any = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Any:
    """`aten::conv1d`, `conv2d` and `conv3d`; a sample without its batch axis gets one for the while."""
    axes = len(weight.shape) - 2

    def for_each_axis(sizes: Sequence[int]) -> list[int]:
        return list(sizes) * (axes if len(sizes) == 1 else 1)

    pads = for_each_axis(padding)
    settings = {
        "kernel_shape": list(weight.shape[2:]),
        "strides": for_each_axis(stride),
        "pads": [*pads, *pads],
        "dilations": for_each_axis(dilation),
        "group": groups,
    }
    first = op.Constant(value_ints=[0])
    lone = len(input.shape) == axes + 1
    x = op.Unsqueeze(input, first) if lone else input
    y = op.Conv(x, weight, **settings) if bias is None else op.Conv(x, weight, bias, **settings)
    return op.Squeeze(y, first) if lone else y


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.conv1d.default: _convolution,
    torch.ops.aten.conv2d.default: _convolution,
    torch.ops.aten.conv3d.default: _convolution,
}
