"""Reading lines of handwritten digits, with CTC: the labels say what stands there, and not where.

A small convolutional network looks at a line of up to six digits and gives scores for each column of the picture:
ten digits and a blank. The loss adds up all ways of stretching the labels over the columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import edgeopt
from edgeopt.cli.quickstart.digits import Digits, load_digits, split
from edgeopt_runtime import TrainingSession
from finetuning.results import Array, Figures, Result, learning_curve, save_figure

BLANK = 0
DIGITS = 10
STEP = 22  # columns from one digit of a line to the next


class Lines(NamedTuple):
    """Pictures of lines, (n, 1, 28, width), their labels (1 to 10, filled up with the blank) and how many there are."""

    images: Array
    labels: Array
    lengths: Array


class Reader(nn.Module):
    """Scores of shape (batch, columns, 11) of pictures."""

    def __init__(self) -> None:
        super().__init__()

        def block(inputs: int, outputs: int, pool: tuple[int, int]) -> list[nn.Module]:
            convolution = nn.Conv2d(inputs, outputs, 3, padding=1)
            return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(pool)]

        self.features = nn.Sequential(*block(1, 16, (2, 2)), *block(16, 32, (2, 2)), *block(32, 64, (7, 1)))
        self.context = nn.Conv1d(64, 64, 5, padding=2)
        self.scores = nn.Linear(64, DIGITS + 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """See the class."""
        columns = torch.relu(self.context(self.features(image).squeeze(2)))
        scores: torch.Tensor = self.scores(columns.transpose(1, 2))
        return scores


def lines(digits: Digits, count: int, longest: int, rng: np.random.Generator) -> Lines:
    """Lines put together from single digits, half of the longest line at least, with gaps of varying width."""
    images = np.zeros((count, 1, 28, longest * STEP + 8), np.float32)
    labels = np.full((count, longest), BLANK, np.int64)
    lengths = rng.integers((longest + 1) // 2, longest + 1, count)
    for row, length in enumerate(lengths):
        chosen = rng.integers(0, len(digits.labels), length)
        start = 0
        for place, digit in enumerate(chosen):
            column = images[row, 0, :, start : start + 28]
            np.maximum(column, digits.images[digit, 0], out=column)
            start += STEP + int(rng.integers(-2, 1))
            labels[row, place] = digits.labels[digit] + 1
    return Lines(images, labels, lengths)


def read(session: TrainingSession, images: Array) -> list[list[int]]:
    """The best label of each column, without repetitions and blanks."""
    best = np.asarray(session.predict(images)).argmax(axis=2)
    found = []
    for row in best:
        changes = row[np.r_[True, row[1:] != row[:-1]]]
        found.append([int(label) for label in changes if label != BLANK])
    return found


def errors(session: TrainingSession, test: Lines) -> float:
    """Wrong, missing and additional digits, over the digits that there are."""
    pairs = zip(read(session, test.images), test.labels, test.lengths, strict=True)
    wrong = sum(distance(found, [int(label) for label in labels[:length]]) for found, labels, length in pairs)
    return wrong / int(test.lengths.sum())


def distance(first: list[int], second: list[int]) -> int:
    """The least number of changes that make one sequence the other (Levenshtein 1966)."""
    row = list(range(len(second) + 1))
    for count, one in enumerate(first, 1):
        previous, row[0] = row[0], count
        for place, other in enumerate(second, 1):
            previous, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, previous + (one != other))
    return row[-1]


def run(folder: Path, *, quick: bool = False) -> Result:
    """Train the reader; writes the bundle and the picture into the folder."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    digits, held_out = split(load_digits(), 100, 0)
    longest, steps = (2, 150) if quick else (6, 1000)
    test = lines(held_out, 100 if quick else 500, longest, rng)
    bundle = edgeopt.export(
        Reader(),
        torch.rand(2, *test.images.shape[1:]),
        loss=edgeopt.losses.CTC(blank=BLANK),
        optimizer=edgeopt.optimizers.AdamW(lr=edgeopt.schedules.WarmupCosine(3e-3, steps // 10, steps)),
        transforms=[edgeopt.transforms.ClipByGlobalNorm(5.0)],
        verbose=False,
    )
    session = bundle.session()
    before, losses = errors(session, test), []
    columns = np.full(32, np.asarray(session.predict(test.images[:1])).shape[1], np.int64)
    for _ in range(steps):
        batch = lines(digits, 32, longest, rng)
        losses.append(session.step((batch.images, batch.labels, columns, batch.lengths))["loss"])
    after = errors(session, test)
    folder.mkdir(parents=True, exist_ok=True)
    session.save(folder / "ocr.edgeopt")
    picture = draw(folder / "ocr.png", session, test, losses)
    figures = [Figures("lines of digits", before, after, f"{int(test.lengths.sum())} digits in held-out lines")]
    return Result("reading lines with CTC", "character error rate", figures, picture, higher_is_better=False)


def draw(path: Path, session: TrainingSession, test: Lines, losses: list[float]) -> Path:
    """The loss, and some lines with what was read."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    grid = figure.add_gridspec(6, 2)
    learning_curve(figure, grid[:, 0], losses)
    found = read(session, test.images[:6])
    for row, digits in enumerate(found):
        axes = figure.add_subplot(grid[row, 1])
        axes.imshow(test.images[row, 0], cmap="gray_r", aspect="auto")
        axes.set_axis_off()
        right = digits == [int(label) for label in test.labels[row, : test.lengths[row]]]
        text = "".join(str(label - 1) for label in digits) or "nothing"
        axes.set_title(text, fontsize=9, color="tab:green" if right else "tab:red", pad=1)
    return save_figure(figure, path)
