"""The models as PyTorch modules."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

__all__ = ["build"]


class Perceptron(nn.Module):
    """784-512-256-10 with ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 512), nn.Linear(512, 256), nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of flat images."""
        x = functional.relu(self.fc1(x))
        x = functional.relu(self.fc2(x))
        logits: torch.Tensor = self.fc3(x)
        return logits


class Convolutional(nn.Module):
    """Two convolutions of 16 and 32 channels, each with ReLU and 2x2 max pooling, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc = nn.Linear(32 * 7 * 7, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of images of one channel."""
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        logits: torch.Tensor = self.fc(x.flatten(1))
        return logits


def build(model: str, weights: Mapping[str, NDArray[np.float32]]) -> nn.Module:
    """The module with copies of these weights."""
    module: nn.Module = Perceptron() if model == "mlp" else Convolutional()
    module.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    return module
