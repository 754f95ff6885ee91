"""Pooling beyond ONNX's operators: averages with another divisor, windows of adaptive pooling, one dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from edgeopt_exporters.pytorch.translations.rewriting import Rewrite

__all__ = ["FUNCTIONS", "REWRITES"]

_AVERAGE: tuple[Callable[..., torch.Tensor], ...] = (
    torch.nn.functional.avg_pool1d,
    torch.nn.functional.avg_pool2d,
    torch.nn.functional.avg_pool3d,
)


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
    if self.ndim == axes + 1:
        return _AVERAGE[axes - 1](
            self.unsqueeze(0),
            *(kernel_size, stride or kernel_size, padding, ceil_mode, count_include_pad),
            *(() if axes == 1 else (divisor_override,)),
        ).squeeze(0)
    if divisor_override is None:
        return NotImplemented
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


def _average_1d(
    self: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    return _average(1, self, kernel_size, stride, padding, ceil_mode, count_include_pad)


def _max_pool1d(
    input: torch.Tensor,  # noqa: A002  # torch's name
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """`max_pool1d` as `max_pool2d` where the length is symbolic, which torch does not capture."""
    length: Any = input.shape[-1]
    if isinstance(length, int):
        return NotImplemented
    kernel, step, pad, gap = (_each(number, 1)[0] for number in (kernel_size, stride or kernel_size, padding, dilation))
    max_pool2d: Any = torch.nn.functional.max_pool2d
    results = max_pool2d(input.unsqueeze(-2), (1, kernel), (1, step), (0, pad), (1, gap), ceil_mode, return_indices)
    return tuple(result.squeeze(-2) for result in results) if return_indices else results.squeeze(-2)


def _max_pool1d_with_indices(*args: Any, **kwargs: Any) -> Any:
    return _max_pool1d(*args, **{**kwargs, "return_indices": True})


def _adaptive(reduce: Any, axes: int, self: torch.Tensor, output_size: Sequence[int]) -> Any:
    """Window i of `size` windows goes from floor(i L / size) to ceil((i + 1) L / size); axis by axis.

    The last axis comes first: then the first of equal elements in row-major order is the one that is found.
    """
    wanted = _each(output_size, axes)
    for axis, size in reversed(list(zip(range(self.ndim - axes, self.ndim), wanted, strict=True))):
        length = self.shape[axis]
        if size == 1:
            self = reduce(self, axis)
        elif not isinstance(length, int):
            return NotImplemented
        else:
            bounds = [(i * length // size, -(-(i + 1) * length // size)) for i in range(size)]
            parts = [reduce(self.narrow(axis, start, end - start), axis) for start, end in bounds]
            self = torch.cat(parts, axis)
    return self


def _largest(x: torch.Tensor, axis: int) -> torch.Tensor:
    return x if x.shape[axis] == 1 else x.max(axis, keepdim=True).values


def _adaptive_maximum(axes: int, self: torch.Tensor, output_size: Sequence[int]) -> Any:
    """`aten::adaptive_max_pool1d`, `2d` and `3d`, without their indices."""
    lengths, wanted = self.shape[self.ndim - axes :], _each(output_size, axes)
    if all(size == 1 for size in wanted):
        flat = self.flatten(self.ndim - axes).max(-1).values
        return flat.reshape([*flat.shape, *wanted]), None
    pairs = list(zip(lengths, wanted, strict=True))
    if all(isinstance(length, int) and length % size == 0 for length, size in pairs):
        kernel = [length // size for length, size in pairs]
        return _MAXIMUM[axes - 1](self, kernel, kernel), None
    pooled = _adaptive(_largest, axes, self, output_size)
    return pooled if pooled is NotImplemented else (pooled, None)


_MAXIMUM = (torch.nn.functional.max_pool1d, torch.nn.functional.max_pool2d, torch.nn.functional.max_pool3d)


def _adaptive_average(axes: int, self: torch.Tensor, output_size: Sequence[int]) -> Any:
    """`aten::adaptive_avg_pool1d`, `2d` and `3d`."""
    pairs = list(zip(self.shape[self.ndim - axes :], _each(output_size, axes), strict=True))
    if all(size == 1 for _, size in pairs) or any(not isinstance(length, int) for length, _ in pairs):
        return NotImplemented
    if axes < 3 and all(length % size == 0 for length, size in pairs):
        return NotImplemented
    return _adaptive(lambda x, axis: x.mean(axis, keepdim=True), axes, self, output_size)


_aten = torch.ops.aten

REWRITES: dict[Any, Rewrite] = {
    _aten.avg_pool1d.default: _average_1d,
    _aten.avg_pool2d.default: partial(_average, 2),
    _aten.avg_pool3d.default: partial(_average, 3),
    _aten.adaptive_max_pool1d.default: partial(_adaptive_maximum, 1),
    _aten.adaptive_max_pool2d.default: partial(_adaptive_maximum, 2),
    _aten.adaptive_max_pool3d.default: partial(_adaptive_maximum, 3),
    _aten.adaptive_avg_pool1d.default: partial(_adaptive_average, 1),
    _aten.adaptive_avg_pool2d.default: partial(_adaptive_average, 2),
    _aten.adaptive_avg_pool3d.default: partial(_adaptive_average, 3),
}

FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.max_pool1d: _max_pool1d,
    torch.nn.functional.max_pool1d_with_indices: _max_pool1d_with_indices,
    torch.max_pool1d: _max_pool1d,
}
