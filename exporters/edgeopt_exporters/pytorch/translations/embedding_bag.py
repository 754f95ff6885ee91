"""EmbeddingBag, for which torch's own translation writes a loop that holds its rows in a sequence."""

from __future__ import annotations

from typing import Any

import torch

from edgeopt.errors import UnsupportedModelError
from edgeopt_exporters.pytorch.translations.rewriting import Rewrite

__all__ = ["REWRITES"]

_SUM, _MEAN = 0, 1


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
    if scale_grad_by_freq:
        raise UnsupportedModelError("EmbeddingBag(scale_grad_by_freq=True) is not exported; leave the option out.")
    if include_last_offset:
        offsets = offsets.narrow(0, 0, offsets.shape[0] - 1)
    bags, width = offsets.shape[0], weight.shape[1]
    # Each index belongs to the last bag that has begun; bags that begin where another does are empty.
    place = torch.arange(indices.shape[0], dtype=offsets.dtype)
    bag = (place.unsqueeze(1) >= offsets.unsqueeze(0)).sum(1) - 1
    rows = torch.embedding(weight, indices, -1 if padding_idx is None else padding_idx)
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
    torch.ops.aten.embedding_bag.default: _embedding_bag,
    torch.ops.aten.embedding_bag.padding_idx: _embedding_bag,
}
