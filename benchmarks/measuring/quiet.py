"""How much of the machine other processes take: times measured next to a busy neighbour say little."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Neighbours"]

# Positions in the first line of /proc/stat, in clock ticks: idle and waiting for a disk.
_IDLE = (4, 5)
# The guest's time is part of the user's.
_LAST = 8


class Neighbours:
    """Watches the CPU time of all other processes, and what a hypervisor withholds.

    Args:
        own: The processes that are not others; this one is none either.
    """

    def __init__(self, own: Sequence[int]) -> None:
        self._own = (*own, os.getpid())
        self._ticks: dict[int, int] = {}
        self._last = self._reading()

    def load(self) -> float:
        """Cores that others kept busy since the last call, on average; 0 where the system does not say."""
        before, self._last = self._last, self._reading()
        elapsed, others = (now - then for now, then in zip(self._last, before, strict=True))
        return max(others, 0.0) / elapsed

    def _reading(self) -> tuple[float, float]:
        if not Path("/proc/stat").exists():
            return time.perf_counter(), 0.0
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        total = sum(int(fields[index]) for index in range(1, _LAST + 1) if index not in _IDLE)
        for process in self._own:
            self._ticks[process] = _ticks(process) or self._ticks.get(process, 0)
        return time.perf_counter(), (total - sum(self._ticks.values())) / os.sysconf("SC_CLK_TCK")


def _ticks(process: int) -> int:
    """CPU time of a process; 0 when it is gone."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # The name in parentheses may hold anything, so count from behind it: user and system time are the 12th and 13th.
    after_name = text.rpartition(")")[2].split()
    return int(after_name[11]) + int(after_name[12])
