"""Architectures of the kind that people write with torch alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class UNet(nn.Module):
    """Two levels; up again by a transposed convolution or by interpolation."""

    def __init__(self, up: nn.Module) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.down = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU())
        self.up = up
        self.leave = nn.Conv2d(16, 5, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skip = self.enter(x)
        return self.leave(torch.cat([skip, self.up(self.down(skip))], 1))


def interpolated() -> nn.Module:
    return nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(16, 8, 1))


class Recurrent(nn.Module):
    """A class from the last output."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0][:, -1])


class Temporal(nn.Module):
    """Causal dilated convolutions with normalised weights and residual connections."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(weight_norm(nn.Conv1d(8, 8, 3, dilation=2**level)) for level in range(3))
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for level, convolution in enumerate(self.convolutions):
            x = x + torch.relu(convolution(nn.functional.pad(x, (2 ** (level + 1), 0))))
        return self.head(x[..., -1])


class PointNet(nn.Module):
    """Points turned by a matrix that is computed from all of them; the largest of each feature."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Sequential(
            nn.Conv1d(3, 16, 1), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(16, 9)
        )
        self.points = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 24, 1))
        self.head = nn.Linear(24, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        matrix = self.turn(x).view(-1, 3, 3) + torch.eye(3, dtype=x.dtype)
        return self.head(self.points(matrix @ x).amax(-1))


class Detector(nn.Module):
    """Boxes from a transformer with learned queries over what convolutions see."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, stride=4, padding=1), nn.ReLU())
        self.transformer = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
        self.queries, self.position = nn.Parameter(torch.randn(5, 16)), nn.Parameter(torch.randn(16, 16))
        self.boxes = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        memory = self.backbone(x).flatten(2).transpose(1, 2) + self.position
        return self.boxes(self.transformer(memory, self.queries.expand(x.shape[0], -1, -1))).sigmoid()


def autoencoder() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.GELU(), nn.Flatten(), nn.Linear(8 * 49, 6)),
        *(nn.Linear(6, 8 * 49), nn.Unflatten(1, (8, 7, 7)), nn.GELU()),
        nn.ConvTranspose2d(8, 1, 3, stride=2, padding=1, output_padding=1),
    )


def keyword_spotter() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv1d(1, 8, 40, stride=8), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(4)),
        *(nn.Conv1d(8, 16, 3), nn.BatchNorm1d(16), nn.ReLU(), nn.AvgPool1d(3)),
        *(nn.Flatten(), nn.Linear(112, 12), nn.LogSoftmax(-1)),
    )


def style_transfer() -> nn.Module:
    return nn.Sequential(
        *(nn.ReflectionPad2d(2), nn.Conv2d(3, 8, 5), nn.InstanceNorm2d(8, affine=True), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.PReLU(16), nn.PixelShuffle(2)),
        *(nn.ReplicationPad2d(1), nn.Conv2d(4, 3, 3), nn.Tanh()),
    )


def lstm() -> Any:
    return Recurrent(nn.LSTM(8, 8, 2, bidirectional=True, batch_first=True), 16)


ROWS = {
    "unet_transposed": lambda: (UNet(nn.ConvTranspose2d(16, 8, 2, stride=2)), (torch.randn(2, 3, 16, 16),)),
    "unet_interpolated": lambda: (UNet(interpolated()), (torch.randn(2, 3, 16, 16),)),
    "bilstm": lambda: (lstm(), (torch.randn(3, 7, 8),)),
    "gru": lambda: (Recurrent(nn.GRU(8, 8, batch_first=True), 8), (torch.randn(3, 7, 8),)),
    "temporal": lambda: (Temporal(), (torch.randn(3, 8, 20),)),
    "pointnet": lambda: (PointNet(), (torch.randn(3, 3, 30),)),
    "detector": lambda: (Detector(), (torch.randn(2, 3, 16, 16),)),
    "autoencoder": lambda: (autoencoder(), (torch.randn(3, 1, 14, 14),)),
    "keyword_spotter": lambda: (keyword_spotter(), (torch.randn(4, 1, 800),)),
    "style_transfer": lambda: (style_transfer(), (torch.randn(2, 3, 16, 16),)),
}


def test_gradients_and_statistics_are_pytorchs(build, check_architecture):
    check_architecture(build)
