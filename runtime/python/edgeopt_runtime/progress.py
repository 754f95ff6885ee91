"""A line that shows how far training has come, and how long it will take."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

__all__ = ["Progress"]

WIDTH = 24
SECONDS_BETWEEN_UPDATES = 0.1
# A notebook sends every update to a browser.
SECONDS_IN_NOTEBOOKS = 0.5


class Progress:
    """A progress line on stderr, rewritten in place on terminals and in notebooks.

    A terminal that cannot rewrite a line (``TERM=dumb``) gets the last state of each; a file or a pipe gets nothing.

    Args:
        label: What is in progress, such as ``epoch 1/3``.
        total: Number of steps, if it is known.
        enabled: Whether to show anything.
        later: How often as many steps follow after these.
    """

    def __init__(self, label: str, total: int | None, enabled: bool = True, later: int = 0) -> None:
        self._label = label
        self._total = total
        self._later = later
        self._notebook = notebook = _is_notebook(sys.stderr)
        self._enabled = enabled and sys.stderr is not None and (notebook or sys.stderr.isatty())
        self._rewrites = notebook or os.environ.get("TERM") != "dumb"
        self._interval = SECONDS_IN_NOTEBOOKS if notebook else SECONDS_BETWEEN_UPDATES
        self._started = time.monotonic()
        self._shown = float("-inf")
        self._length = 0

    def update(self, done: int, metrics: Mapping[str, Any]) -> None:
        """Show that ``done`` steps are done; most calls return at once."""
        if self._enabled and self._rewrites:
            now = time.monotonic()
            if now - self._shown >= self._interval:
                self._shown = now
                self._show(self._text(done, metrics, now))

    def close(self, done: int, metrics: Mapping[str, Any]) -> None:
        """Show the final numbers and end the line."""
        if self._enabled:
            self._show(self._text(done, metrics, time.monotonic()))
            sys.stderr.write("\n")

    def _text(self, done: int, metrics: Mapping[str, Any], now: float) -> str:
        count = str(done)
        rate = done / max(now - self._started, 1e-9)
        left = ""
        if self._total:
            filled = min(WIDTH, WIDTH * done // self._total)
            count = f"[{'=' * filled}{' ' * (WIDTH - filled)}] {done}/{self._total}"
            steps = self._total - done + self._later * self._total
            left = f"  {_duration(steps / rate)} left" if steps > 0 and done else ""
        numbers = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items() if isinstance(value, (int, float)))
        return f"{self._label} {count}  {rate:.1f}/s{left}  {numbers}"

    def _show(self, text: str) -> None:
        if not self._notebook:
            # What goes over the edge of a terminal cannot be rewritten. Its last column stays free: some wrap there.
            text = text[: max(shutil.get_terminal_size().columns - 1, 20)]
        sys.stderr.write(("\r" if self._rewrites else "") + text.ljust(self._length))
        sys.stderr.flush()
        self._length = len(text)


def _is_notebook(stream: Any) -> bool:
    """Whether a stream goes to a notebook, which takes it from the kernel and is no terminal."""
    return type(stream).__module__.partition(".")[0] == "ipykernel"


def _duration(seconds: float) -> str:
    """0:07, 12:40, 3:05:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
