"""RReLU: a random slope for each element in training, their mean otherwise."""

from __future__ import annotations

from typing import Any

import torch

from edgeopt_exporters.pytorch.translations.rewriting import Rewrite

__all__ = ["REWRITES"]


def _rrelu(self: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> torch.Tensor:
    """`aten::rrelu`."""
    if not training:
        return torch.nn.functional.leaky_relu(self, (lower + upper) / 2)
    slopes = torch.rand_like(self) * (upper - lower) + lower
    return torch.where(self > 0, self, self * slopes)


REWRITES: dict[Any, Rewrite] = {
    torch.ops.aten.rrelu.default: _rrelu,
}
