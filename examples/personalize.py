"""A gesture recogniser learns one user's way of moving, on that user's device.

It is trained for everyone with PyTorch, and exported with only its last layer trainable. The device then learns from a
few labelled gestures of a user who holds the sensor the other way round. The data are made up: each gesture is a curve
of a three-axis accelerometer, a little different every time.

    pip install "edgeopt[torch]"
    python examples/personalize.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import edgeopt
from edgeopt_runtime import TrainingSession

GESTURES = 4
SAMPLES = 48  # a gesture is so many readings of three axes


class Recogniser(nn.Module):
    """Two convolutions over time, a mean, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv1d(16, 32, 5, stride=2), nn.ReLU()
        )
        self.head = nn.Linear(32, GESTURES)

    def forward(self, readings: torch.Tensor) -> torch.Tensor:
        """Logits of shape (batch, GESTURES) of readings of shape (batch, 3, SAMPLES)."""
        logits: torch.Tensor = self.head(self.features(readings).mean(dim=2))
        return logits


def gestures(
    rng: np.random.Generator, count: int, orientation: NDArray[np.float64]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Gestures of a user, and which they are; `orientation` is how the three axes of the sensor lie in the hand."""
    labels = rng.integers(0, GESTURES, count)
    time = np.linspace(0.0, 2.0 * np.pi, SAMPLES)
    speed = rng.uniform(0.8, 1.2, (count, 1))
    phase = rng.uniform(-0.4, 0.4, (count, 1))
    curve = np.stack(
        [
            np.sin((1 + labels[:, None] % 2) * speed * time + phase),
            np.cos((1 + labels[:, None] // 2) * speed * time),
            speed * np.sin(time / 2),
        ],
        axis=1,
    )
    readings = np.einsum("ij,njt->nit", orientation, curve) + 0.2 * rng.standard_normal((count, 3, SAMPLES))
    return readings.astype(np.float32), labels


def pretrain(rng: np.random.Generator) -> nn.Module:
    """A recogniser for everyone who holds the sensor upright."""
    torch.manual_seed(0)
    model = Recogniser()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(300):
        readings, labels = gestures(rng, 32, np.eye(3))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.from_numpy(readings)), torch.from_numpy(labels)).backward()
        optimizer.step()
    return model


def main(folder: Path) -> tuple[float, float]:
    """Export, then personalise. Returns the user's accuracy before and after."""
    rng = np.random.default_rng(0)
    edgeopt.export(
        pretrain(rng),
        torch.zeros(2, 3, SAMPLES),
        loss=edgeopt.losses.CrossEntropy(),
        optimizer=edgeopt.optimizers.AdamW(lr=1e-2),
        metrics=[edgeopt.metrics.Accuracy()],
        trainable="head.*",
    ).save(folder / "gestures.edgeopt")

    # From here on the device is at work, with numpy, onnxruntime and safetensors.
    session = TrainingSession.load(folder / "gestures.edgeopt")
    turned = np.diag([-1.0, 1.0, -1.0])
    readings, labels = gestures(rng, 40, turned)
    test = gestures(rng, 400, turned)
    before = session.evaluate(test)["accuracy"]
    session.fit([(readings[i : i + 8], labels[i : i + 8]) for i in range(0, 40, 8)], epochs=40)
    after = session.evaluate(test)["accuracy"]
    session.save(folder / "mine.edgeopt")
    session.export_inference(folder / "mine.onnx")
    return before, after


if __name__ == "__main__":
    print("accuracy for this user: {:.1%} before, {:.1%} after 40 gestures".format(*main(Path())))
