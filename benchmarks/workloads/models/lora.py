"""Low-rank updates of linear layers (Hu et al., 2021), written out, so that every peer sees the same module."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

__all__ = ["LoraLinear", "add_lora"]


class LoraLinear(nn.Module):
    """`base(x) + scale·B(A(x))`, where A starts random and B at zero."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base = base
        self.lora_a = nn.Linear(base.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, base.out_features, bias=False)
        self.scale = alpha / rank
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's output with its update."""
        out: torch.Tensor = self.base(x) + self.scale * self.lora_b(self.lora_a(x))
        return out


def add_lora(module: nn.Module, names: Sequence[str], rank: int, alpha: float = 16.0) -> None:
    """Give each linear layer of these names an update, in place; its parameters are `….lora_a` and `….lora_b`."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if name in names and isinstance(child, nn.Linear):
                setattr(parent, name, LoraLinear(child, rank, alpha))
