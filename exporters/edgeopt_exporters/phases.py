"""A line on the terminal that says what a long export is doing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["PATIENCE", "phase", "phases_shown"]

#: Seconds after which an export says what it is doing. One that takes less says nothing.
PATIENCE = 2.0

_CURRENT: ContextVar[_Line | None] = ContextVar("line", default=None)


class _Line:
    """A spinner, the phase and the time since the export began, drawn once it has taken a while."""

    def __init__(self, console: Console) -> None:
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task("exporting", total=None)
        self._timer = threading.Timer(PATIENCE, self._progress.start)
        self._timer.daemon = True

    def show(self, text: str) -> None:
        self._progress.update(self._task, description=text)

    def start(self) -> None:
        self._timer.start()

    def stop(self) -> None:
        self._timer.cancel()
        self._timer.join()
        self._progress.stop()


@contextmanager
def phases_shown(*, verbose: bool) -> Iterator[None]:
    """Show the phases of what runs inside on stderr, if that is a terminal; and take the line away at the end."""
    console = Console(file=sys.stderr)
    if not verbose or not console.is_terminal or _CURRENT.get() is not None:
        yield
        return
    line = _Line(console)
    token = _CURRENT.set(line)
    line.start()
    try:
        yield
    finally:
        _CURRENT.reset(token)
        line.stop()


def phase(text: str) -> None:
    """Say what comes next."""
    line = _CURRENT.get()
    if line is not None:
        line.show(text)
