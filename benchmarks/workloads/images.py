"""Images: an MLP, a small CNN, MobileNetV2 and ResNet-18."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from workloads.base import Batch, Workload, generator

if TYPE_CHECKING:
    from torch import nn

CLASSES = 10


def _pictures(size: int, shape: tuple[int, ...], contrast: float) -> Callable[[int], Batch]:
    """Ten random patterns under noise."""
    patterns = generator(1).standard_normal((CLASSES, *shape))

    def batch(step: int) -> Batch:
        random = generator(2, step)
        labels = random.integers(0, CLASSES, size)
        noisy = contrast * patterns[labels] + random.standard_normal((size, *shape))
        return noisy.astype(np.float32), labels

    return batch


def _model(name: str) -> Callable[[], nn.Module]:
    return lambda: getattr(import_module("workloads.models.images"), name)()


_SMALL = (3, 96, 96)

WORKLOADS = (
    Workload("mlp-1", "MLP, batch 1", _model("perceptron"), _pictures(1, (784,), 0.08)),
    Workload("mlp-32", "MLP, batch 32", _model("perceptron"), _pictures(32, (784,), 0.08)),
    Workload("cnn", "small CNN, batch 32", _model("small_cnn"), _pictures(32, (1, 28, 28), 0.08)),
    Workload("mobilenet", "MobileNetV2 0.35", _model("mobilenet_v2"), _pictures(8, _SMALL, 0.3), lr=1e-4),
    Workload(
        "mobilenet-last",
        "MobileNetV2 0.35, last layers",
        _model("mobilenet_v2"),
        _pictures(8, _SMALL, 0.3),
        lr=1e-4,
        trainable=("conv_head.*", "bn2.*", "classifier.*"),
    ),
    Workload("resnet18", "ResNet-18", _model("resnet18"), _pictures(8, (3, 64, 64), 0.3), lr=1e-4),
)
