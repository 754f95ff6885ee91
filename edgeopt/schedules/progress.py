"""Shares of a run: what the schedules have in common."""

from __future__ import annotations

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, positive, require

__all__ = ["check_warmup", "half_wave", "ratio", "share", "warmed_up"]


def check_warmup(lr: float, warmup: float, total: float) -> None:
    """Require a rate, and a warm-up that ends before the run does."""
    at_least("lr", lr, 0.0)
    at_least("warmup", warmup, 0)
    positive("total", total)
    require(warmup < total, f"warmup must end before total, got warmup={warmup!r} and total={total!r}")


def ratio(xp: Namespace, part: Array, whole: Array) -> Array:
    """part/whole for counts of steps; a whole of less than one step counts as one."""
    return part / xp.maximum(whole, xp.ones_like(whole))


def share(xp: Namespace, part: Array, whole: Array) -> Array:
    """part/whole for counts of steps, limited to [0, 1]."""
    return xp.clip(ratio(xp, part, whole), 0.0, 1.0)


def half_wave(xp: Namespace, remaining: Array) -> Array:
    """(1 + cos(π·p))/2 with p = 1 - remaining: from 1 down to 0, and exactly 0 at the end."""
    return 0.5 - 0.5 * xp.cos(xp.pi * remaining)


def warmed_up(xp: Namespace, done: Array, warmup: Array, factor: Array) -> Array:
    """done/warmup during the warm-up, and `factor` after it."""
    return xp.where(done < warmup, ratio(xp, done, warmup), factor)
