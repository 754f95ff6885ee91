"""Writes bundles, batches and what training on them gives, for environments that cannot export.

usage: make_bundles.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import edgeopt
from edgeopt.losses import MSE, CrossEntropy
from edgeopt.metrics import Accuracy
from edgeopt.optimizers import SGD, AdamW, Optimizer
from edgeopt.schedules import WarmupCosine
from edgeopt.transforms import ClipByGlobalNorm

CLASSES = 5
BATCH_SIZES = (4, 7, 1, 8, 8, 8)


class TokenClassifier(nn.Module):
    """Embedding, one transformer layer, mean over the sequence, linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.encoder = nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.encoder(self.embedding(tokens)).mean(dim=1))
        return logits


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.GELU(), nn.Linear(32, CLASSES))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(64, CLASSES),
    )


def images(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    return rng.standard_normal((count, 1, 8, 8), dtype=np.float32)


def tokens(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    return rng.integers(0, 20, (count, 6))


class Length(nn.Module):
    """The length of a product; its slope at zero is NaN, where the loss is finite."""

    def __init__(self) -> None:
        super().__init__()
        # Large enough to be looked through as a matrix.
        self.weight = nn.Parameter(torch.ones(64, 65))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight).square().sum(1).sqrt()


def sgd() -> Optimizer:
    return SGD(lr=0.05, momentum=0.9, nesterov=True)


def adamw() -> Optimizer:
    # Some gradients here are zero but for rounding (biases in front of BatchNorm, of attention's keys). With the usual
    # eps Adam would make whole steps of them, different ones on each release.
    return AdamW(lr=WarmupCosine(1e-2, warmup_steps=2, total_steps=6), weight_decay=0.01, eps=1e-4)


CASES: dict[str, tuple[Any, Any, Any]] = {
    "mlp": (mlp, images, sgd),
    "cnn": (cnn, images, adamw),
    "transformer": (TokenClassifier, tokens, adamw),
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (build, sample, optimizer) in CASES.items():
        torch.manual_seed(0)
        rng = np.random.default_rng(0)
        bundle = edgeopt.export(
            build(),
            torch.from_numpy(sample(rng, 2)),
            loss=CrossEntropy(),
            optimizer=optimizer(),
            transforms=[ClipByGlobalNorm(1.0)],
            metrics=[Accuracy()],
        )
        bundle.save(folder / f"{name}.edgeopt")
        session = bundle.session(threads=1)
        results: dict[str, NDArray[Any]] = {}
        for index, size in enumerate(BATCH_SIZES):
            batch = (sample(rng, size), rng.integers(0, CLASSES, size))
            results |= {f"batch.{index}.{position}": array for position, array in enumerate(batch)}
            results |= {f"step.{index}.{key}": np.asarray(value) for key, value in session.step(batch).items()}
        results |= {f"evaluate.{key}": np.asarray(value) for key, value in session.evaluate(batch).items()}
        results["predict"] = np.asarray(session.predict(batch[0]))
        results |= {f"parameter.{key}": array for key, array in session.parameters().items()}
        np.savez(folder / f"{name}.npz", allow_pickle=False, **results)
    length = edgeopt.export(Length(), torch.ones(2, 64), loss=MSE(), optimizer=AdamW(lr=1e-3))
    length.save(folder / "length.edgeopt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
