"""A progress bar for `TrainingSession.fit`, and a table that grows by a line an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from edgeopt.cli.console import format_number
from edgeopt_runtime import FitInfo, TrainingSession

__all__ = ["TrainingProgress"]

# format_number writes a digit, a point, three more digits and an exponent at most, but for large negative numbers.
WIDEST_NUMBER = 9


class TrainingProgress:
    """A callback for `fit`, and a context manager around it.

    Args:
        console: Where to draw; without a terminal only the table is printed.
        epochs: Number of epochs.
        steps: Number of steps an epoch.
        table: Whether to print the table.
    """

    def __init__(self, console: Console, *, epochs: int, steps: int, table: bool = True) -> None:
        self._epochs, self._table = epochs, table
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("loss {task.fields[loss]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=epochs * steps, loss="-", rate="")

    def __enter__(self) -> TrainingProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, session: TrainingSession, info: FitInfo) -> None:
        """Take in one step or one finished epoch."""
        if info.event == "step":
            speed = self._progress.tasks[self._task].speed
            rate = f"{speed:.1f}/s" if speed else ""
            self._progress.update(self._task, advance=1, loss=format_number(info.metrics["loss"]), rate=rate)
            return
        if not self._table:
            return
        # Arrays have no place in a row; `edgeopt evaluate` prints them.
        numbers = {name: value for name, value in info.metrics.items() if isinstance(value, float)}
        headings = [name.replace("evaluate.", "val ") for name in numbers]
        widths = [max(len(heading), WIDEST_NUMBER) for heading in headings]
        if info.epoch == 1:
            self._print("epoch", headings, widths, "dim")
        self._print(f"{info.epoch}/{self._epochs}", [format_number(value) for value in numbers.values()], widths)

    def _print(self, first: str, cells: Sequence[str], widths: Sequence[int], style: str = "") -> None:
        columns = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]
        self._progress.console.print("  ".join([f"{first:>7}", *columns]), style=style, soft_wrap=True)
