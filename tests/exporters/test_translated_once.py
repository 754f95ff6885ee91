"""torch's exporter, which takes most of the time of an export, runs once where both modes are one program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.optimizers import SGD


class Branching(nn.Module):
    """Asks for its mode by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x)
        return y * 2.0 if self.training else y


class Constant(nn.Module):
    """Its modes differ by the value of a constant alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x) * torch.tensor([1.0, 2.0, 3.0 if self.training else 4.0])
        return y


class Counting(nn.Module):
    """Writes into a buffer in training only."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.count += 1.0
        y: torch.Tensor = self.layer(x)
        return y


class Frozen(nn.Module):
    """A normalisation that stays in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3).eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.norm(self.layer(x))
        return y


@pytest.mark.parametrize(
    ("module", "translations"),
    [
        (nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), 1),
        (nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)), 1),
        (Frozen(), 1),
        (nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), 2),
        (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), 2),
        (Branching(), 2),
        (Constant(), 2),
        (Counting(), 2),
    ],
    ids=["plain", "norm", "frozen", "dropout", "batch norm", "branching", "constant", "counting"],
)
def test_both_modes_are_translated_only_where_they_differ(
    module: nn.Module, translations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = torch.onnx.export

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs)
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.onnx, "export", counted)
    x = torch.randn(6, 4)
    session: Any = edgeopt.export(module, x, loss="mse", optimizer=SGD(0.1), verbose=False).session()
    assert len(calls) == translations
    was = module.training
    expected = module.eval()(x).detach()
    module.train(was)
    np.testing.assert_allclose(session.predict(x.numpy()), expected, rtol=1e-5, atol=1e-6)
