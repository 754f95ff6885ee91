"""Distances and angles between points, with PyTorch's gradients where points coincide (none)."""

from __future__ import annotations

import math
from typing import Any

import torch

from edgeopt_exporters.pytorch.translations.rewriting import Rewrite
from edgeopt_exporters.pytorch.translations.surrogate import with_gradient_of

__all__ = ["REWRITES"]


def _norm(difference: torch.Tensor, p: float) -> torch.Tensor:
    """The p-norm of the last axis. In the maximum norm each of several largest elements gets the whole gradient."""
    size = difference.abs()
    if p == 0.0:
        return (difference != 0).to(difference.dtype).sum(-1)
    if p == 1.0:
        return size.sum(-1)
    if p == math.inf:
        largest = size.detach().amax(-1, keepdim=True)
        return with_gradient_of(largest.squeeze(-1), (size * (size == largest).to(size.dtype)).sum(-1))
    if p == 2.0:
        total = difference.square().sum(-1)
    else:
        zero = size == 0
        powers = torch.where(zero, torch.ones_like(size), size).pow(p)
        total = torch.where(zero, torch.zeros_like(size), powers).sum(-1)
    nothing = total == 0
    some = torch.where(nothing, torch.ones_like(total), total)
    root = some.sqrt() if p == 2.0 else some.pow(1.0 / p)
    return torch.where(nothing, torch.zeros_like(total), root)


def _between(x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, compute_mode: int | None = None) -> torch.Tensor:
    """`aten::cdist`: (…, P, M) and (…, R, M) to (…, P, R), without the shortcut by a product that loses digits."""
    return _norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def _within(self: torch.Tensor, p: float = 2.0) -> Any:
    """`aten::pdist`: every pair of rows once."""
    if not isinstance(self.shape[0], int) or self.shape[0] < 2:
        return NotImplemented
    count = self.shape[0]
    rows = [self.narrow(0, i, 1) - self.narrow(0, i + 1, count - 1 - i) for i in range(count - 1)]
    return _norm(torch.cat(rows), p)


def _cosine(x1: torch.Tensor, x2: torch.Tensor, dim: int = 1, eps: float = 1e-8) -> torch.Tensor:
    """`aten::cosine_similarity`, whose norms are raised to eps behind the back of their gradients."""
    norms = (torch.linalg.vector_norm(x, 2, dim, keepdim=True) for x in (x1, x2))
    first, second = (with_gradient_of(norm.clamp(min=eps), norm) for norm in norms)
    return ((x1 / first) * (x2 / second)).sum(dim)


REWRITES: dict[Any, Rewrite] = {
    torch.ops.aten.cdist.default: _between,
    torch.ops.aten.cosine_similarity.default: _cosine,
    torch.ops.aten.pdist.default: _within,
}
