"""Products and extrema of all elements so far, by doubling: after k rounds each holds those of the last 2ᵏ."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from edgeopt_exporters.pytorch.translations.rewriting import Rewrite

__all__ = ["REWRITES"]


def _shifted(x: torch.Tensor, dim: int, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The elements that have one `step` places before them, that one, and the others."""
    rest = x.shape[dim] - step
    return x.narrow(dim, step, rest), x.narrow(dim, 0, rest), x.narrow(dim, 0, step)


def _cumulative_product(self: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """`aten::cumprod`, along an axis of known length."""
    x = self if dtype is None else self.to(dtype)
    if x.ndim == 0:
        return x.clone()
    if not isinstance(x.shape[dim], int):
        return NotImplemented
    if not (x.is_floating_point() or dtype is not None):
        x = x.to(torch.int64)
    step = 1
    while step < x.shape[dim]:
        later, earlier, first = _shifted(x, dim, step)
        x = torch.cat([first, earlier * later], dim)
        step *= 2
    return x


def _cumulative_extremum(is_worse: Callable[..., torch.Tensor], self: torch.Tensor, dim: int) -> Any:
    """`aten::cummax` and `aten::cummin`: the last of elements that tie, and its index."""
    if self.ndim == 0 or not isinstance(self.shape[dim], int) or not self.is_floating_point():
        return NotImplemented
    shape = [1] * self.ndim
    shape[dim] = -1
    values, indices = self, torch.arange(self.shape[dim]).reshape(shape).expand(self.shape)
    step = 1
    while step < self.shape[dim]:
        later, earlier, first = _shifted(values, dim, step)
        later_at, earlier_at, first_at = _shifted(indices, dim, step)
        stays = is_worse(later, earlier)
        values = torch.cat([first, torch.where(stays, earlier, later)], dim)
        indices = torch.cat([first_at, torch.where(stays, earlier_at, later_at)], dim)
        step *= 2
    return values, indices


REWRITES: dict[Any, Rewrite] = {
    torch.ops.aten.cumprod.default: _cumulative_product,
    torch.ops.aten.cummax.default: partial(_cumulative_extremum, torch.lt),
    torch.ops.aten.cummin.default: partial(_cumulative_extremum, torch.gt),
}
