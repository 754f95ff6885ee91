"""Architectures of torchvision; those that have no name for a size are small."""

from __future__ import annotations

from typing import Any

import torch
from torchvision import models
from torchvision.models.convnext import CNBlockConfig


def images(size: int, batch: int = 4) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 3, size, size),)


def mobilenet_v2() -> Any:
    """One block of each stage but the last two; each is given as expansion, channels, blocks, stride."""
    stages = [[1, 16, 1, 1], [6, 24, 1, 2], [6, 32, 1, 2], [6, 64, 1, 2], [6, 96, 1, 1]]
    return models.MobileNetV2(num_classes=10, width_mult=0.25, inverted_residual_setting=stages)


def convnext() -> Any:
    return models.ConvNeXt([CNBlockConfig(16, 32, 1), CNBlockConfig(32, None, 1)], num_classes=5)


def vgg() -> Any:
    module = models.VGG(models.vgg.make_layers([8, "M", 16, "M", 16, "M"], batch_norm=True))
    module.avgpool, module.classifier = torch.nn.AdaptiveAvgPool2d(2), torch.nn.Linear(64, 5)
    return module


ROWS = {
    # At its full depth, some ReLU6 is always so near a kink that only float64 tells the side.
    "mobilenet_v2_full": lambda: (models.mobilenet_v2(num_classes=10, width_mult=0.25), images(64)),
    "mobilenet_v2": lambda: (mobilenet_v2(), images(32, 8)),
    "mobilenet_v3_small": lambda: (models.mobilenet_v3_small(num_classes=10, width_mult=0.5), images(64)),
    "efficientnet_b0": lambda: (models.efficientnet_b0(num_classes=10), images(64, 8)),
    "resnet18": lambda: (models.resnet18(num_classes=10), images(32, 8)),
    "convnext": lambda: (convnext(), images(32)),
    "vit": lambda: (models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=5), images(32)),
    "swin": lambda: (models.SwinTransformer([4, 4], 24, [1, 1], [2, 2], [4, 4], num_classes=5), images(32)),
    "densenet": lambda: (models.DenseNet(8, (2, 2), 16, num_classes=5), images(32)),
    "shufflenet_v2": lambda: (models.ShuffleNetV2([2, 2, 2], [8, 16, 24, 32, 64], num_classes=5), images(64)),
    "squeezenet": lambda: (models.squeezenet1_1(num_classes=5), images(40)),
    "vgg": lambda: (vgg(), images(32)),
}


def test_gradients_and_statistics_are_pytorchs(build, check_architecture):
    check_architecture(build)
