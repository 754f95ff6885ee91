"""Cosines that begin anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, positive, require
from edgeopt.schedules.base import Converted, Schedule, static
from edgeopt.schedules.progress import as_rate, check_warmup, half_wave, share, warmed_up

__all__ = ["CosineCycles", "CosineRestarts"]


@dataclass(frozen=True)
class CosineRestarts(Schedule):
    """Half cosines from lr to `eta_min`, each `T_mult` times as long as the one before (SGDR).

    With u updates into a cycle of length L, the first of which is `T_0`::

        eta_min + (lr - eta_min)·(1 + cos(π·u/L))/2

    `T_mult` is static. `min_lr_ratio`, a share of lr, can be given in place of `eta_min`. Same as
    `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`. Source: Loshchilov and Hutter, ICLR 2017, arXiv:1608.03983.
    """

    converted: ClassVar[Converted] = {"min_lr_ratio": ("eta_min", as_rate)}

    lr: float
    T_0: int  # torch's name
    T_mult: int = static(1)  # torch's name
    eta_min: float = 0.0

    if TYPE_CHECKING:
        min_lr_ratio: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        positive("T_0", self.T_0)
        at_least("T_mult", self.T_mult, 1)
        at_least("eta_min", self.eta_min, 0.0)
        require(self.eta_min <= self.lr, f"eta_min={self.eta_min!r} lies above lr={self.lr!r}")

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done, period, grow = xp.astype(step, xp.float64), hyper["T_0"], float(self.T_mult)
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
        return hyper["eta_min"] + (hyper["lr"] - hyper["eta_min"]) * wave


@dataclass(frozen=True)
class CosineCycles(Schedule):
    """Linear rise over `warmup_steps` updates to `lr`, then half cosines down to 0, `num_cycles` of them.

    With t completed updates, W = warmup_steps, T = total_steps and p = (t-W)/(T-W)::

        lr·t/W                                       for t < W
        lr·(1 + cos(π·((num_cycles·p) mod 1)))/2     up to T, and 0 from then on

    Same as `get_cosine_with_hard_restarts_schedule_with_warmup` of Hugging Face transformers.
    """

    lr: float
    warmup_steps: int
    total_steps: int
    num_cycles: int = 1

    def __post_init__(self) -> None:
        check_warmup(self.lr, self.warmup_steps, self.total_steps)
        positive("num_cycles", self.num_cycles)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        warmup, total = hyper["warmup_steps"], hyper["total_steps"]
        turns = hyper["num_cycles"] * share(xp, done - warmup, total - warmup)
        wave = half_wave(xp, 1.0 - (turns - xp.floor(turns)))
        factor = xp.where(done >= total, xp.zeros_like(wave), wave)
        return hyper["lr"] * warmed_up(xp, done, warmup, factor)
