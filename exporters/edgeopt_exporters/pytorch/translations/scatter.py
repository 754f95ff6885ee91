"""Means of what is scattered: ONNX has sums, products and extrema, and torch's translation of a mean keeps the last."""

from __future__ import annotations

from typing import Any

import torch

from edgeopt_exporters.pytorch.translations.rewriting import Rewrite

__all__ = ["REWRITES"]


def _scatter_reduce(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str, include_self: bool = True
) -> Any:
    """`aten::scatter_reduce.two` with "mean": the sum over the count, which is 1 where nothing arrives."""
    if reduce != "mean":
        return NotImplemented
    if self.ndim == 0:
        self_, index, src = self.reshape(1), index.reshape(1), src.reshape(1)
        return _scatter_reduce(self_, 0, index, src, reduce, include_self).reshape(())
    # What is beyond the index does not arrive.
    for axis, size in enumerate(index.shape):
        src = src.narrow(axis, 0, size)
    ones = torch.ones_like(self)
    if not include_self:
        self = self.scatter(dim, index, 0.0)
        reached = ones.scatter(dim, index, 0.0)
    else:
        reached = ones
    count = reached.scatter_add(dim, index, torch.ones_like(src))
    total = self.scatter_add(dim, index, src)
    return total / count if self.is_floating_point() else total.div(count, rounding_mode="floor")


def _scatter_added(self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str) -> Any:
    """`aten::scatter.reduce`; PyTorch differentiates sums, not products."""
    return self.scatter_add(dim, index, src) if reduce == "add" else NotImplemented


_INDEX_REDUCTIONS = {"prod": "prod", "mean": "mean", "amax": "amax", "amin": "amin"}


def _index_reduce(
    self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, include_self: bool = True
) -> Any:
    """`aten::index_reduce`: whole slices, at the places of a list."""
    if self.ndim == 0:
        return NotImplemented
    shape = [1] * self.ndim
    shape[dim] = -1
    index = index.reshape(shape).expand(source.shape)
    kind = _INDEX_REDUCTIONS[reduce]
    if kind == "mean":
        return _scatter_reduce(self, dim, index, source, kind, include_self)
    return self.scatter_reduce(dim, index, source, kind, include_self=include_self)


REWRITES: dict[Any, Rewrite] = {
    torch.ops.aten.scatter.reduce: _scatter_added,
    torch.ops.aten.scatter_reduce.two: _scatter_reduce,
    torch.ops.aten.index_reduce.default: _index_reduce,
}
