"""What an example ends with: numbers before and after, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

__all__ = ["Figures", "Result", "learning_curve", "save_figure", "shuffled"]

Array = NDArray[Any]


class Figures(NamedTuple):
    """One line of the result.

    Attributes:
        name: What is measured, or the way in which it was trained.
        before: The number before training.
        after: The number after it.
        note: What else there is to say: sizes, times.
    """

    name: str
    before: float
    after: float
    note: str = ""


@dataclass(frozen=True)
class Result:
    """The end of an example.

    Attributes:
        title: What was done, in a line.
        measure: What the numbers are.
        figures: The numbers.
        picture: The file that shows them.
        higher_is_better: Whether training makes the numbers larger.
    """

    title: str
    measure: str
    figures: Sequence[Figures]
    picture: Path
    higher_is_better: bool = True

    def table(self) -> str:
        """Title, and a line for each of the numbers."""
        width = max(len(line.name) for line in self.figures)
        rows = [f"{'':{width}}   before    after   ({self.measure})"]
        rows += [f"{line.name:{width}} {line.before:8.3f} {line.after:8.3f}   {line.note}" for line in self.figures]
        return "\n".join([self.title, *(f"  {row.rstrip()}" for row in rows), f"  picture: {self.picture}"])


def shuffled(rng: np.random.Generator, size: int, *arrays: Array) -> list[tuple[Array, ...]]:
    """Arrays of equal length in batches of `size`, in random order; the rest that fills no batch is left out."""
    order = rng.permutation(len(arrays[0]))
    starts = range(0, len(order) - size + 1, size)
    return [tuple(array[order[start : start + size]] for array in arrays) for start in starts]


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=110)
    return path


def learning_curve(figure: Figure, place: Any, losses: Sequence[float], label: str = "") -> None:
    """Draw the loss at each step, smoothed, into a part of a figure."""
    axes = figure.add_subplot(place)
    window = max(1, len(losses) // 25)
    smooth = np.convolve(losses, np.full(window, 1.0 / window), mode="valid")
    axes.plot(np.arange(1, len(losses) + 1), losses, color="tab:blue", alpha=0.25, linewidth=0.8)
    axes.plot(np.arange(window, len(losses) + 1), smooth, color="tab:blue", label=label or f"mean of {window} steps")
    axes.set_xlabel("step")
    axes.set_ylabel("training loss")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
