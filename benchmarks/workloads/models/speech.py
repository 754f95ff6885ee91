"""Modules that hear keywords."""

from __future__ import annotations

import torch
from torch import nn

from workloads.speech import BANDS, CLASSES, UNITS

__all__ = ["Keywords"]


class Keywords(nn.Module):
    """One recurrent layer, `"GRU"` or `"LSTM"`, and a linear one on its last output."""

    def __init__(self, cell: str) -> None:
        super().__init__()
        self.cell = (nn.GRU if cell == "GRU" else nn.LSTM)(BANDS, UNITS, batch_first=True)
        self.fc = nn.Linear(UNITS, CLASSES)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Logits of (batch, frames, bands) features."""
        outputs, _ = self.cell(features)
        logits: torch.Tensor = self.fc(outputs[:, -1])
        return logits
