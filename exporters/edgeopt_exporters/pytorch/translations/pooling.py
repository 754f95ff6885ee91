"""Pooling beyond ONNX's operators: averages with another divisor, windows of adaptive pooling, one dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from edgeopt_exporters.pytorch.translations.rewriting import Rewrite

__all__ = ["FUNCTIONS", "REWRITES"]

_AVERAGE = (torch.nn.functional.avg_pool1d, torch.nn.functional.avg_pool2d, torch.nn.functional.avg_pool3d)


def _each(numbers: Any, axes: int) -> list[int]:
    """A setting for each axis."""
    listed = list(numbers) if isinstance(numbers, (list, tuple)) else [numbers]
    return listed * axes if len(listed) == 1 else listed


def _average(
    axes: int,
    self: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The sum of each window over `divisor_override`: padded by hand, so that every window is whole."""
    if divisor_override is None and not (self.ndim == axes + 1):
        return NotImplemented
    if self.ndim == axes + 1:
        return _AVERAGE[axes - 1](
            self.unsqueeze(0),
            *(kernel_size, stride or kernel_size, padding, ceil_mode, count_include_pad),
            *(() if axes == 1 else (divisor_override,)),
        ).squeeze(0)
    kernel = _each(kernel_size, axes)
    strides, pads = _each(stride or kernel, axes), _each(padding, axes)
    extra = [step - 1 if ceil_mode else 0 for step in strides]
    around = [width for pad, more in zip(reversed(pads), reversed(extra), strict=True) for width in (pad, pad + more)]
    sums = _AVERAGE[axes - 1](torch.nn.functional.pad(self, around), kernel, strides)
    if ceil_mode:
        # A window that would begin in the padding behind does not count.
        for axis, (pad, step) in enumerate(zip(pads, strides, strict=True), start=2):
            begun = (self.shape[axis] + pad - 1) // step + 1
            sums = sums.narrow(axis, 0, torch.sym_min(sums.shape[axis], begun))
    return sums * (math.prod(kernel) / divisor_override)


REWRITES: dict[Any, Rewrite] = {
    torch.ops.aten.avg_pool1d.default: lambda self, kernel_size, stride=(), padding=(0,), ceil_mode=False, count_include_pad=True: _average(1, self, kernel_size, stride, padding, ceil_mode, count_include_pad),
    torch.ops.aten.avg_pool2d.default: partial(_average, 2),
    torch.ops.aten.avg_pool3d.default: partial(_average, 3),
}
