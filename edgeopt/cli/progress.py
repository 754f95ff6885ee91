"""A progress bar for `TrainingSession.fit`, and a line an epoch that stays."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from edgeopt.cli.console import format_number
from edgeopt_runtime import FitInfo, TrainingSession

__all__ = ["TrainingProgress"]


class TrainingProgress:
    """A callback for `fit`, and a context manager around it.

    Args:
        console: Where to draw; without a terminal only the lines of the epochs are printed.
        epochs: Number of epochs.
        steps: Number of steps an epoch.
    """

    def __init__(self, console: Console, *, epochs: int, steps: int) -> None:
        self._epochs = epochs
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=epochs * steps, loss="-")

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
            self._progress.update(self._task, advance=1, loss=format_number(info.metrics["loss"]))
        else:
            width = len(str(self._epochs))
            line = Text(f"epoch {info.epoch:>{width}}/{self._epochs}")
            for name, value in info.metrics.items():
                line.append(f"  {name} ", "dim").append(f"{format_number(value):<8}")
            self._progress.console.print(line)
