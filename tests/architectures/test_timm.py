"""Architectures of timm; the `test_` models are its own miniatures of their families."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import timm
import torch


def row(name: str, size: int = 64, batch: int = 4, **settings: Any) -> Callable[[], tuple[Any, tuple[torch.Tensor]]]:
    def build() -> tuple[Any, tuple[torch.Tensor]]:
        return timm.create_model(name, num_classes=5, **settings), (torch.randn(batch, 3, size, size),)

    return build


def mixer() -> tuple[Any, tuple[torch.Tensor]]:
    settings = {"img_size": 32, "patch_size": 8, "num_blocks": 2, "embed_dim": 32}
    return timm.models.mlp_mixer.MlpMixer(num_classes=5, **settings), (torch.randn(4, 3, 32, 32),)


ROWS = {
    "mobilenet_v4": row("mobilenetv4_conv_small_050", batch=8),
    "mobilevit": row("mobilevit_xxs"),
    "vit": row("test_vit", img_size=32),
    "convnext": row("test_convnext"),
    "byobnet": row("test_byobnet"),
    "nfnet": row("test_nfnet"),
    "mambaout": row("test_mambaout"),
    "mixer": mixer,
}


def test_gradients_and_statistics_are_pytorchs(build, check_architecture):
    check_architecture(build)
