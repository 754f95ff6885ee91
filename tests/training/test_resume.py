"""Twenty steps equal ten steps, a save, a new process and ten more, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import edgeopt
from edgeopt.losses import CrossEntropy
from edgeopt.optimizers import AdamW
from edgeopt.schedules import WarmupCosine
from edgeopt.transforms import ClipByGlobalNorm

SECOND_HALF = """
import sys
import numpy as np
from edgeopt_runtime import TrainingSession
session = TrainingSession.load(sys.argv[1], threads=1)
batches = np.load(sys.argv[2])
for x, y in zip(batches["x"][10:], batches["y"][10:]):
    session.step((x, y))
session.save(sys.argv[3])
"""


class Noisy(nn.Module):
    """Everything that carries state from step to step: BatchNorm, dropout, an optimizer and a schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def export() -> edgeopt.Bundle:
    torch.manual_seed(0)
    return edgeopt.export(
        Noisy(),
        torch.randn(4, 6),
        loss=CrossEntropy(),
        optimizer=AdamW(lr=WarmupCosine(1e-2, 3, 20), amsgrad=True),
        transforms=[ClipByGlobalNorm(0.5)],
    )


def test_resume_in_a_new_process_is_exact(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((20, 8, 6)).astype(np.float32), rng.integers(0, 3, (20, 8))
    np.savez(tmp_path / "batches.npz", x=x, y=y)
    bundle = export()

    whole = bundle.session(threads=1)
    for pair in zip(x, y, strict=True):
        whole.step(pair)

    half = bundle.session(threads=1)
    for pair in zip(x[:10], y[:10], strict=True):
        half.step(pair)
    half.save(tmp_path / "half.edgeopt")
    arguments = [str(tmp_path / name) for name in ("half.edgeopt", "batches.npz", "resumed.edgeopt")]
    subprocess.run([sys.executable, "-c", SECOND_HALF, *arguments], check=True)

    resumed: dict[str, Any] = dict(edgeopt.Bundle.load(tmp_path / "resumed.edgeopt").state)
    expected = whole.state()
    assert set(resumed) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)
    assert expected["optimizer.step"] == 20
    assert expected["random.draws"] == 20
