"""What is trained: initial weights, batches and hyperparameters, the same arrays for everyone who is measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ADAMW", "BATCH_SIZE", "SGD", "SIZES", "Batch", "Workload", "batches", "weights"]

Batch = tuple[NDArray[np.float32], NDArray[np.int64]]

BATCH_SIZE = 32
PIXELS, CLASSES = 28 * 28, 10
SGD = {"lr": 0.01, "momentum": 0.9}
ADAMW = {"lr": 1e-3, "weight_decay": 0.01}

# Shape of each weight, as PyTorch lays it out: the outputs first. Each has a bias of as many elements.
SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "mlp": {"fc1": (512, PIXELS), "fc2": (256, 512), "fc3": (CLASSES, 256)},
    "cnn": {"conv1": (16, 1, 3, 3), "conv2": (32, 16, 3, 3), "fc": (CLASSES, 32 * 7 * 7)},
}
INPUT_SHAPES = {"mlp": (PIXELS,), "cnn": (1, 28, 28)}


@dataclass(frozen=True)
class Workload:
    """One row of the table.

    Attributes:
        model: "mlp" or "cnn".
        optimizer: "sgd" (with momentum) or "adamw".
        threads: Threads within an operator.
    """

    model: str
    optimizer: str
    threads: int

    def save(self, path: Path) -> None:
        """Write the workload for another process."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Workload:
        """Read what `save` wrote."""
        fields: dict[str, Any] = json.loads(path.read_text())
        return cls(**fields)


def weights(model: str) -> dict[str, NDArray[np.float32]]:
    """Initial weights and biases by name, uniform within ±1/√fan_in as PyTorch's layers start."""
    random = np.random.default_rng(0)
    arrays: dict[str, NDArray[np.float32]] = {}
    for name, shape in SIZES[model].items():
        bound = 1 / np.sqrt(np.prod(shape[1:]))
        arrays[f"{name}.weight"] = random.uniform(-bound, bound, shape).astype(np.float32)
        arrays[f"{name}.bias"] = random.uniform(-bound, bound, shape[:1]).astype(np.float32)
    return arrays


def batches(model: str) -> Callable[[int], Batch]:
    """The batch of each step.

    Ten random patterns under noise: a model learns them within some dozen steps, but the noise keeps its loss away
    from zero, where a comparison of losses would say nothing and where moments of gradients become denormal numbers.
    """
    patterns = np.random.default_rng(1).standard_normal((CLASSES, PIXELS))

    def batch(step: int) -> Batch:
        random = np.random.default_rng([2, step])
        labels = random.integers(0, CLASSES, BATCH_SIZE)
        images = 0.08 * patterns[labels] + random.standard_normal((BATCH_SIZE, PIXELS))
        return images.astype(np.float32).reshape(BATCH_SIZE, *INPUT_SHAPES[model]), labels

    return batch
