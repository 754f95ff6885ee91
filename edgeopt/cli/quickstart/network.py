"""The quickstart's model and how it is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import edgeopt

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["digit_classifier", "export_digit_classifier"]


def digit_classifier(seed: int) -> tuple[nn.Module, Tensor]:
    """A CNN of 20,000 parameters for 28 x 28 images, and a batch to export it with."""
    import torch
    from torch import nn

    # The generator is global in torch's initializers; fork_rng gives it back as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(32 * 7 * 7, 10),
        )
    return model, torch.zeros(2, 1, 28, 28)


def export_digit_classifier(steps: int, seed: int) -> edgeopt.Bundle:
    """Export the CNN for a training run of `steps` steps."""
    model, example_inputs = digit_classifier(seed)
    return edgeopt.export(
        model,
        example_inputs,
        loss=edgeopt.losses.CrossEntropy(),
        optimizer=edgeopt.optimizers.AdamW(
            lr=edgeopt.schedules.WarmupCosine(3e-3, warmup=steps // 10, total=steps), weight_decay=0.01
        ),
        transforms=[edgeopt.transforms.ClipByGlobalNorm(1.0)],
        metrics=[edgeopt.metrics.Accuracy()],
        seed=seed,
    )
