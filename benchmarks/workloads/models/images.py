"""Modules that classify images."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

__all__ = ["mobilenet_v2", "perceptron", "resnet18", "small_cnn"]


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
    """Two 3x3 convolutions of 16 and 32 channels, each with ReLU and 2x2 max pooling, and a linear layer."""

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


def perceptron() -> nn.Module:
    """The MLP."""
    return Perceptron()


def small_cnn() -> nn.Module:
    """The small CNN."""
    return Convolutional()


def mobilenet_v2() -> nn.Module:
    """timm's MobileNetV2 of a third of the width, for ten classes."""
    import timm

    module: nn.Module = timm.create_model("mobilenetv2_035", num_classes=10, drop_rate=0.0, drop_path_rate=0.0)
    return module


def resnet18() -> nn.Module:
    """torchvision's ResNet-18 for ten classes."""
    import torchvision

    module: nn.Module = torchvision.models.resnet18(num_classes=10)
    return module
