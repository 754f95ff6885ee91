"""Cosines that begin anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, fraction, positive
from edgeopt.schedules.base import Schedule, static
from edgeopt.schedules.progress import check_warmup, half_wave, share, warmed_up

__all__ = ["CosineCycles", "CosineRestarts"]


@dataclass(frozen=True)
class CosineRestarts(Schedule):
    """Half cosines from lr to `final`·lr, each `multiplier` times as long as the one before (SGDR).

    With u updates into a cycle of length L, the first of which is `period`::

        lr·(final + (1 - final)·(1 + cos(π·u/L))/2)

    The multiplier is static. Same as `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`. Source: Loshchilov and
    Hutter, ICLR 2017, arXiv:1608.03983.
    """

    lr: float
    period: int
    multiplier: int = static(1)
    final: float = 0.0

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        positive("period", self.period)
        at_least("multiplier", self.multiplier, 1)
        fraction("final", self.final, closed=True)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done, period, grow = xp.astype(step, xp.float64), hyper["period"], float(self.multiplier)
        if grow == 1.0:
            into, length = done - xp.floor(done / period) * period, period
        else:
            # Cycle n begins at period·(growⁿ - 1)/(grow - 1). The logarithm may be off by one at the boundaries.
            base = xp.asarray(grow, dtype=xp.float64)
            cycle = xp.floor(xp.log(done / period * (grow - 1.0) + 1.0) / xp.log(base) + 0.5)
            late = xp.astype(period * (base**cycle - 1.0) / (grow - 1.0) > done, xp.float64)
            length = period * base ** (cycle - late)
            into = done - (length - period) / (grow - 1.0)
        wave = half_wave(xp, 1.0 - into / length)
        return hyper["lr"] * (hyper["final"] + (1.0 - hyper["final"]) * wave)


@dataclass(frozen=True)
class CosineCycles(Schedule):
    """Linear rise over `warmup` updates to `lr`, then `cycles` half cosines down to 0 in `total` updates.

    With t completed updates, W = warmup, T = total and p = (t-W)/(T-W)::

        lr·t/W                                       for t < W
        lr·(1 + cos(π·((cycles·p) mod 1)))/2         up to T, and 0 from then on

    Same as `get_cosine_with_hard_restarts_schedule_with_warmup` of Hugging Face transformers.
    """

    lr: float
    total: int
    cycles: int = 1
    warmup: int = 0

    def __post_init__(self) -> None:
        check_warmup(self.lr, self.warmup, self.total)
        positive("cycles", self.cycles)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        turns = hyper["cycles"] * share(xp, done - hyper["warmup"], hyper["total"] - hyper["warmup"])
        wave = half_wave(xp, 1.0 - (turns - xp.floor(turns)))
        factor = xp.where(done >= hyper["total"], xp.zeros_like(wave), wave)
        return hyper["lr"] * warmed_up(xp, done, hyper["warmup"], factor)
