"""Linear warm-up followed by a decay to the end of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, fraction, positive, require
from edgeopt.schedules.base import Schedule

__all__ = ["WarmupCosine", "WarmupLinear"]


def _check(lr: float, warmup: int, total: int) -> None:
    at_least("lr", lr, 0.0)
    at_least("warmup", warmup, 0)
    positive("total", total)
    require(warmup < total, f"warmup must end before total, got warmup={warmup!r} and total={total!r}")


def _remaining(xp: Namespace, hyper: Mapping[str, Array], done: Array) -> Array:
    """Fraction of the decay that is still ahead: 1 at the end of the warm-up, 0 from `total` on."""
    length = xp.maximum(hyper["total"] - hyper["warmup"], 1.0)
    return xp.clip((hyper["total"] - done) / length, 0.0, 1.0)


def _warmed_up(xp: Namespace, hyper: Mapping[str, Array], done: Array, decay: Array) -> Array:
    """Peak rate times done/warmup during the warm-up, and times `decay` after it."""
    # A warm-up of no steps never takes the first branch; the maximum keeps its division finite.
    rise = done / xp.maximum(hyper["warmup"], 1.0)
    return hyper["lr"] * xp.where(done < hyper["warmup"], rise, decay)


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
        _check(self.lr, self.warmup, self.total)

    def hyperparameters(self) -> dict[str, float]:
        """Return the peak rate and the two step counts."""
        return {"lr": float(self.lr), "warmup": float(self.warmup), "total": float(self.total)}

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        return _warmed_up(xp, hyper, done, _remaining(xp, hyper, done))


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
        _check(self.lr, self.warmup, self.total)
        fraction("final", self.final, closed=True)

    def hyperparameters(self) -> dict[str, float]:
        """Return the peak rate, the two step counts and the final fraction."""
        return {
            "lr": float(self.lr),
            "warmup": float(self.warmup),
            "total": float(self.total),
            "final": float(self.final),
        }

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        # (1 + cos(π·p))/2 with p = 1 - remaining; in this form it is exactly 0 at the end.
        wave = 0.5 - 0.5 * xp.cos(xp.pi * _remaining(xp, hyper, done))
        return _warmed_up(xp, hyper, done, hyper["final"] + (1.0 - hyper["final"]) * wave)
