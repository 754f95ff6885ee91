"""The quickstart's model and how it is trained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import edgeopt

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["digit_classifier", "export_digit_classifier", "lowest_loss"]

CLASSES = 10
# On 400 samples a class, smoothing is worth half a percent of accuracy.
SMOOTHING = 0.1


def digit_classifier(seed: int) -> tuple[nn.Module, Tensor]:
    """A CNN of 29,000 parameters for images of 28 x 28 pixels, and a batch to export it with."""
    import torch
    from torch import nn

    def block(channels_in: int, channels_out: int) -> list[nn.Module]:
        convolution = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        return [convolution, nn.BatchNorm2d(channels_out), nn.ReLU(), nn.MaxPool2d(2)]

    # torch's initializers draw from a global generator; fork_rng gives it back as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(
            *block(1, 16), *block(16, 32), *block(32, 64), nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 3 * 3, CLASSES)
        )
    return model, torch.zeros(2, 1, 28, 28)


def lowest_loss() -> float:
    """The loss of a model that is always right: the entropy of smoothed labels."""
    right, wrong = 1.0 - SMOOTHING + SMOOTHING / CLASSES, SMOOTHING / CLASSES
    return -(right * math.log(right) + (CLASSES - 1) * wrong * math.log(wrong))


def export_digit_classifier(steps: int, seed: int) -> edgeopt.Bundle:
    """Export the CNN for a training run of `steps` steps."""
    model, example_inputs = digit_classifier(seed)
    return edgeopt.export(
        model,
        example_inputs,
        loss=edgeopt.losses.CrossEntropy(label_smoothing=SMOOTHING),
        optimizer=edgeopt.optimizers.AdamW(
            lr=edgeopt.schedules.WarmupCosine(3e-3, warmup_steps=steps // 10, total_steps=steps), weight_decay=0.01
        ),
        transforms=[edgeopt.transforms.ClipByGlobalNorm(1.0)],
        metrics=[edgeopt.metrics.Accuracy()],
        seed=seed,
    )
