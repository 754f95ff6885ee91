"""Linear warm-up followed by a decay to the end of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import fraction
from edgeopt.schedules.base import Schedule
from edgeopt.schedules.progress import check_warmup, half_wave, share, warmed_up

__all__ = ["WarmupCosine", "WarmupLinear"]


@dataclass(frozen=True)
class WarmupLinear(Schedule):
    """Linear rise over `warmup` updates to `lr`, then a linear fall that reaches 0 after `total` updates.

    With t completed updates, W = warmup and T = total::

        lr·t/W                  for t < W
        lr·max(0, (T-t)/(T-W))  otherwise

    With a warm-up the first update (t = 0) has rate 0 and update W + 1 is the first at the peak; without one the first
    update is at the peak. Same as `get_linear_schedule_with_warmup` of Hugging Face transformers.
    """

    lr: float
    warmup: int
    total: int

    def __post_init__(self) -> None:
        check_warmup(self.lr, self.warmup, self.total)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        remaining = share(xp, hyper["total"] - done, hyper["total"] - hyper["warmup"])
        return hyper["lr"] * warmed_up(xp, done, hyper["warmup"], remaining)


@dataclass(frozen=True)
class WarmupCosine(Schedule):
    """Linear rise over `warmup` updates to `lr`, then half a cosine down to `final`·lr after `total` updates.

    With t completed updates, W = warmup, T = total and p = min(1, (t-W)/(T-W))::

        lr·t/W                                     for t < W
        lr·(final + (1-final)·(1 + cos(π·p))/2)    otherwise

    `final` is a fraction of the peak, 0 by default. The first update has rate 0 when there is a warm-up. Same as
    `get_cosine_schedule_with_warmup` of Hugging Face transformers (and, with `final`, as its
    `get_cosine_with_min_lr_schedule_with_warmup`) up to `total`; past it the rate stays at its final value, where
    theirs rises again.
    """

    lr: float
    warmup: int
    total: int
    final: float = 0.0

    def __post_init__(self) -> None:
        check_warmup(self.lr, self.warmup, self.total)
        fraction("final", self.final, closed=True)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        wave = half_wave(xp, share(xp, hyper["total"] - done, hyper["total"] - hyper["warmup"]))
        factor = hyper["final"] + (1.0 - hyper["final"]) * wave
        return hyper["lr"] * warmed_up(xp, done, hyper["warmup"], factor)
