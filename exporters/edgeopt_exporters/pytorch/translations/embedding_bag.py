"""Embeddings: bags of rows, for which torch's own translation writes a loop, and gradients divided by how often.

With `scale_grad_by_freq`, a row's gradient is divided by the number of times that the batch reads it.
"""

from __future__ import annotations

from typing import Any

import torch

from edgeopt_exporters.pytorch.translations.rewriting import Rewrite
from edgeopt_exporters.pytorch.translations.surrogate import with_gradient_of

__all__ = ["REWRITES"]

_SUM, _MEAN = 0, 1


def _divided_by_frequency(rows: torch.Tensor, indices: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """The same rows, with gradients divided."""
    flat = indices.reshape(-1).to(torch.int64)
    seen = rows.new_zeros(vocabulary).scatter_add(0, flat, torch.ones_like(flat, dtype=rows.dtype))
    return with_gradient_of(rows, rows / seen[flat].reshape(indices.shape).unsqueeze(-1))


def _embedding(
    weight: torch.Tensor, indices: torch.Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False
) -> Any:
    """`aten::embedding` with `scale_grad_by_freq`."""
    if not scale_grad_by_freq:
        return NotImplemented
    return _divided_by_frequency(torch.embedding(weight, indices, padding_idx), indices, weight.shape[0])


def _embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """`aten::embedding_bag`: the rows of each bag, from its offset to the next, summed, averaged, or their maxima."""
    if include_last_offset:
        offsets = offsets.narrow(0, 0, offsets.shape[0] - 1)
    bags, width = offsets.shape[0], weight.shape[1]
    # Each index belongs to the last bag that has begun; bags that begin where another does are empty.
    place = torch.arange(indices.shape[0], dtype=offsets.dtype)
    bag = (place.unsqueeze(1) >= offsets.unsqueeze(0)).sum(1) - 1
    rows = torch.embedding(weight, indices, -1 if padding_idx is None else padding_idx)
    if scale_grad_by_freq:
        rows = _divided_by_frequency(rows, indices, weight.shape[0])
    counts = torch.ones_like(indices, dtype=weight.dtype)
    if padding_idx is not None:
        padding = padding_idx % weight.shape[0]
        counts = (indices != padding).to(weight.dtype)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    number = weight.new_zeros(bags).scatter_add(0, bag, counts)
    where = bag.unsqueeze(1).expand(-1, width)
    if mode in (_SUM, _MEAN):
        if padding_idx is not None:
            rows = rows * counts.unsqueeze(1)
        output = weight.new_zeros((bags, width)).scatter_add(0, where, rows)
        if mode == _MEAN:
            output = output / number.clamp(min=1.0).unsqueeze(1)
    else:
        lowest = torch.full_like(rows, -_HUGE[weight.dtype])
        rows = torch.where(counts.unsqueeze(1) > 0, rows, lowest)
        highest = weight.new_full((bags, width), -_HUGE[weight.dtype])
        output = highest.scatter_reduce(0, where, rows, "amax")
        output = torch.where(number.unsqueeze(1) > 0, output, torch.zeros_like(output))
    return output, bag, number.to(indices.dtype), None


_HUGE = {dtype: torch.finfo(dtype).max for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)}

REWRITES: dict[Any, Rewrite] = {
    torch.ops.aten.embedding.default: _embedding,
    torch.ops.aten.embedding_bag.default: _embedding_bag,
    torch.ops.aten.embedding_bag.padding_idx: _embedding_bag,
}
