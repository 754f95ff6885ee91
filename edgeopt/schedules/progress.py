"""Shares of a run: what the schedules have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, fraction, positive, require

__all__ = ["as_rate", "as_ratio", "check_warmup", "half_wave", "ratio", "share", "warmed_up"]


def check_warmup(lr: float, warmup: float, total: float, name: str = "total_steps") -> None:
    """Require a rate, and a warm-up that ends before the run does."""
    at_least("lr", lr, 0.0)
    at_least("warmup_steps", warmup, 0)
    positive(name, total)
    require(warmup < total, f"the warm-up must end before the run, got warmup_steps={warmup!r} and {name}={total!r}")


def as_ratio(rate: Any, settings: Mapping[str, Any]) -> float:
    """A rate as a share of the peak `lr`, for settings that other frameworks give as rates."""
    peak = settings.get("lr")
    at_least("lr", peak, 0.0)
    at_least("the lowest rate", rate, 0.0)
    require(rate <= cast(float, peak), f"the lowest rate {rate!r} lies above lr={peak!r}")
    return float(rate / peak) if peak else 0.0


def as_rate(share_of_peak: Any, settings: Mapping[str, Any]) -> float:
    """The rate that is a share of the peak `lr`."""
    at_least("lr", settings.get("lr"), 0.0)
    fraction("min_lr_ratio", share_of_peak, closed=True)
    return float(share_of_peak * settings["lr"])


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
