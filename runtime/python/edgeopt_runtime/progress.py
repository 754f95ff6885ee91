"""A line on the terminal that shows how far training has come."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

__all__ = ["Progress"]

WIDTH = 24
SECONDS_BETWEEN_UPDATES = 0.1


class Progress:
    """A progress line on stderr, rewritten in place; silent if stderr is not a terminal.

    Args:
        label: What is in progress, such as ``epoch 1/3``.
        total: Number of steps, if it is known.
        enabled: Whether to show anything.
    """

    def __init__(self, label: str, total: int | None, enabled: bool = True) -> None:
        self._label = label
        self._total = total
        self._enabled = enabled and sys.stderr is not None and sys.stderr.isatty()
        self._started = time.monotonic()
        self._shown = float("-inf")
        self._length = 0

    def update(self, done: int, metrics: Mapping[str, float]) -> None:
        """Show that ``done`` steps are done; most calls return at once."""
        if self._enabled:
            now = time.monotonic()
            if now - self._shown >= SECONDS_BETWEEN_UPDATES:
                self._shown = now
                self._show(self._text(done, metrics, now))

    def close(self, done: int, metrics: Mapping[str, float]) -> None:
        """Show the final numbers and end the line."""
        if self._enabled:
            self._show(self._text(done, metrics, time.monotonic()))
            sys.stderr.write("\n")

    def _text(self, done: int, metrics: Mapping[str, float], now: float) -> str:
        count = str(done)
        if self._total:
            filled = min(WIDTH, WIDTH * done // self._total)
            count = f"[{'=' * filled}{' ' * (WIDTH - filled)}] {done}/{self._total}"
        rate = done / max(now - self._started, 1e-9)
        numbers = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        return f"{self._label} {count}  {rate:.1f}/s  {numbers}"

    def _show(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._length))
        sys.stderr.flush()
        self._length = len(text)
