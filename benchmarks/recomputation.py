"""How much memory recomputation saves on a deep network, and what it costs: `python benchmarks/recomputation.py`.

Each variant trains in a process of its own. Memory is the growth of the peak resident memory (VmHWM, Linux only) over
the training steps; time is the median step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn

import edgeopt
from edgeopt_runtime import TrainingSession
from measuring.memory import peak_memory

VARIANTS: dict[str, str] = {"kept": "", "auto": "auto", "blocks": "blocks.*"}
HEAD = "| what is recomputed | peak MiB | share | ms a step | ratio | nodes |\n|---|---|---|---|---|---|\n"


class Block(nn.Module):
    """Two 3x3 convolutions with BatchNorm and ReLU around a skip connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Feature maps of the same shape."""
        return torch.relu(x + self.body(x))


class ResidualNetwork(nn.Module):
    """A residual network of constant width, as deep as asked for."""

    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of (batch, 3, height, width) images."""
        logits: torch.Tensor = self.head(self.blocks(self.stem(x)).mean((2, 3)))
        return logits


def train(folder: Path, batch: int, steps: int) -> dict[str, float]:
    """Train a bundle for some steps on one thread; memory in MiB, milliseconds, and the last loss."""
    session = TrainingSession.load(folder, threads=1)
    random = np.random.default_rng(0)
    images = random.standard_normal((batch, 3, 32, 32)).astype(np.float32)
    labels = random.integers(0, 10, batch)
    before, times, loss = peak_memory() or 0.0, [], 0.0
    for _ in range(steps):
        start = time.perf_counter()
        loss = float(session.step((images, labels))["loss"])
        times.append(time.perf_counter() - start)
    return {
        "mib": (peak_memory() or 0.0) - before,
        "ms": 1000 * statistics.median(times),
        "loss": loss,
    }


def main() -> int:
    """Export the variants, train each in a fresh process, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=24)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        print(json.dumps(train(options.train, options.batch, options.steps)))
        return 0

    torch.manual_seed(0)
    model = ResidualNetwork(options.depth, options.width)
    print(f"{options.depth} blocks of width {options.width}, batch {options.batch}, 32x32 images\n\n{HEAD}", end="")
    first: dict[str, float] | None = None
    with tempfile.TemporaryDirectory() as folder:
        for name, what in VARIANTS.items():
            bundle = edgeopt.export(
                model,
                torch.zeros(2, 3, 32, 32),
                loss=edgeopt.losses.CrossEntropy(),
                optimizer=edgeopt.optimizers.SGD(lr=0.01, momentum=0.9),
                recompute=what,
            )
            path = Path(folder, f"{name}.edgeopt")
            bundle.save(path)
            command = [sys.executable, __file__, "--train", str(path), "--batch", str(options.batch)]
            command += ["--steps", str(options.steps)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            first = first or found
            if found["loss"] != first["loss"]:
                print(f"{name}: the loss is {found['loss']}, not {first['loss']}", file=sys.stderr)
                return 1
            nodes = len(onnx.ModelProto.FromString(bundle.graphs["step.onnx"]).graph.node)
            print(
                f"| {what or 'nothing'} | {found['mib']:.0f} | {found['mib'] / first['mib']:.2f} | {found['ms']:.0f} | "
                f"{found['ms'] / first['ms']:.2f} | {nodes} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
