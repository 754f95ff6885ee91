"""Resident memory of this process."""

from __future__ import annotations

from pathlib import Path

__all__ = ["forget_peak", "peak_memory"]


def peak_memory() -> float | None:
    """Largest resident memory so far in MiB; None where the system does not say.

    Not `getrusage`: its maximum outlives exec, and would count what the parent process held.
    """
    return _status("VmHWM")


def forget_peak() -> float | None:
    """The resident memory now in MiB, from which on the peak is counted; None where the system does not say.

    Importing a package may have held more for a moment than the steps behind it ever will.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return peak_memory()
    return _status("VmRSS")


def _status(field: str) -> float | None:
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(field)), None)
