"""Linear warm-up followed by a decay to the end of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, fraction
from edgeopt.schedules.base import Converted, Schedule
from edgeopt.schedules.progress import as_ratio, check_warmup, half_wave, share, warmed_up

__all__ = ["ConstantWithWarmup", "WarmupCosine", "WarmupLinear"]


@dataclass(frozen=True)
class ConstantWithWarmup(Schedule):
    """Linear rise over `warmup_steps` updates to `lr`, which is held: lr·min(1, t/warmup_steps).

    Same as `get_constant_schedule_with_warmup` of Hugging Face transformers.
    """

    lr: float
    warmup_steps: int

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        at_least("warmup_steps", self.warmup_steps, 0)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        return hyper["lr"] * warmed_up(xp, done, hyper["warmup_steps"], xp.ones_like(done))


@dataclass(frozen=True)
class WarmupLinear(Schedule):
    """Linear rise over `warmup_steps` updates to `lr`, then a linear fall that reaches 0 after `total_steps` updates.

    With t completed updates, W = warmup_steps and T = total_steps::

        lr·t/W                  for t < W
        lr·max(0, (T-t)/(T-W))  otherwise

    With a warm-up the first update (t = 0) has rate 0 and update W + 1 is the first at the peak; without one the first
    update is at the peak. Same as `get_linear_schedule_with_warmup` of Hugging Face transformers.
    """

    lr: float
    warmup_steps: int
    total_steps: int

    def __post_init__(self) -> None:
        check_warmup(self.lr, self.warmup_steps, self.total_steps)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        remaining = share(xp, hyper["total_steps"] - done, hyper["total_steps"] - hyper["warmup_steps"])
        return hyper["lr"] * warmed_up(xp, done, hyper["warmup_steps"], remaining)


@dataclass(frozen=True)
class WarmupCosine(Schedule):
    """Linear rise over `warmup_steps` updates to `lr`, then half a cosine down to `min_lr_ratio`·lr.

    With t completed updates, W = warmup_steps, T = total_steps, p = min(1, (t-W)/(T-W)) and r = min_lr_ratio::

        lr·t/W                             for t < W
        lr·(r + (1-r)·(1 + cos(π·p))/2)    otherwise

    `min_lr_ratio` is a fraction of the peak, 0 by default; `eta_min`, a rate, can be given in its place. The first
    update has rate 0 when there is a warm-up. Same as `get_cosine_schedule_with_warmup` of Hugging Face transformers
    (and, with `min_lr_ratio`, as its `get_cosine_with_min_lr_schedule_with_warmup`) up to `total_steps`; past it the
    rate stays at its final value, where theirs rises again.
    """

    converted: ClassVar[Converted] = {"eta_min": ("min_lr_ratio", as_ratio)}

    lr: float
    warmup_steps: int
    total_steps: int
    min_lr_ratio: float = 0.0

    if TYPE_CHECKING:
        eta_min: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_warmup(self.lr, self.warmup_steps, self.total_steps)
        fraction("min_lr_ratio", self.min_lr_ratio, closed=True)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        wave = half_wave(xp, share(xp, hyper["total_steps"] - done, hyper["total_steps"] - hyper["warmup_steps"]))
        factor = hyper["min_lr_ratio"] + (1.0 - hyper["min_lr_ratio"]) * wave
        return hyper["lr"] * warmed_up(xp, done, hyper["warmup_steps"], factor)
