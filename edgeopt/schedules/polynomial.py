"""Straight lines and powers of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, fraction, positive, require
from edgeopt.schedules.base import Schedule
from edgeopt.schedules.progress import check_warmup, share, warmed_up

__all__ = ["REX", "Linear", "PiecewiseLinear", "Polynomial"]


@dataclass(frozen=True)
class Linear(Schedule):
    """A straight line from `start_factor`·lr to `end_factor`·lr over `total_iters` updates; the end is held.

    Same as `torch.optim.lr_scheduler.LinearLR`.
    """

    lr: float
    start_factor: float = 1.0 / 3.0
    end_factor: float = 1.0
    total_iters: int = 5

    def __post_init__(self) -> None:
        positive("total_iters", self.total_iters)
        for name in ("lr", "start_factor", "end_factor"):
            at_least(name, getattr(self, name), 0.0)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = share(xp, xp.astype(step, xp.float64), hyper["total_iters"])
        return hyper["lr"] * (hyper["start_factor"] + (hyper["end_factor"] - hyper["start_factor"]) * done)


@dataclass(frozen=True)
class Polynomial(Schedule):
    """A power of what is left of `total_iters` updates, behind a linear rise to `lr` if there are `warmup_steps`.

    With t completed updates, W = warmup_steps, T = total_iters, p = min(1, (t-W)/(T-W)) and r = min_lr_ratio::

        lr·t/W                                        for t < W
        lr·(r + (1 - r)·(1 - p)^power)                otherwise

    Without a warm-up and with `min_lr_ratio=0` the same as `torch.optim.lr_scheduler.PolynomialLR`; with them as
    `get_polynomial_decay_schedule_with_warmup` of Hugging Face transformers, whose `lr_end` is `min_lr_ratio`·lr.
    """

    lr: float
    total_iters: int
    power: float = 1.0
    warmup_steps: int = 0
    min_lr_ratio: float = 0.0

    def __post_init__(self) -> None:
        check_warmup(self.lr, self.warmup_steps, self.total_iters, "total_iters")
        positive("power", self.power)
        fraction("min_lr_ratio", self.min_lr_ratio, closed=True)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        remaining = share(xp, hyper["total_iters"] - done, hyper["total_iters"] - hyper["warmup_steps"])
        factor = hyper["min_lr_ratio"] + (1.0 - hyper["min_lr_ratio"]) * remaining ** hyper["power"]
        return hyper["lr"] * warmed_up(xp, done, hyper["warmup_steps"], factor)


@dataclass(frozen=True)
class REX(Schedule):
    """Reflected exponential decay to `min_lr_ratio`·lr (Chen et al., MLSys 2022, arXiv:2107.04197).

    With z = min(1, t/total_steps) and r = min_lr_ratio::

        lr·(r + (1 - r)·(1 - z)/(1 - z/2))
    """

    lr: float
    total_steps: int
    min_lr_ratio: float = 0.0

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        positive("total_steps", self.total_steps)
        fraction("min_lr_ratio", self.min_lr_ratio, closed=True)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        remaining = share(xp, hyper["total_steps"] - xp.astype(step, xp.float64), hyper["total_steps"])
        # 1 - z/2 = (1 + remaining)/2
        return hyper["lr"] * (
            hyper["min_lr_ratio"] + (1.0 - hyper["min_lr_ratio"]) * remaining / (0.5 + 0.5 * remaining)
        )


@dataclass(frozen=True)
class PiecewiseLinear(Schedule):
    """Straight lines between the points (`milestones`, `factors`·lr); constant before the first and after the last.

    The points are static. A trapezoid, for example, is `milestones=(0, 100, 900, 1000)` and `factors=(0, 1, 1, 0)`.

    Raises:
        ConfigurationError: The milestones do not rise, or there are not as many factors.
    """

    lr: float
    milestones: Sequence[int]
    factors: Sequence[float]

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        require(
            isinstance(self.milestones, tuple) and isinstance(self.factors, tuple) and len(self.milestones) > 0,
            "milestones and factors must be tuples of at least one number",
        )
        require(len(self.milestones) == len(self.factors), "there must be as many factors as milestones")
        for factor in self.factors:
            at_least("factors", factor, 0.0)
        rising = all(before < after for before, after in zip(self.milestones, self.milestones[1:], strict=False))
        require(rising and self.milestones[0] >= 0, f"milestones must rise from 0 or more, got {self.milestones!r}")

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        factor = xp.asarray(float(self.factors[0]), dtype=xp.float64)
        lines = zip(self.milestones, self.milestones[1:], self.factors, self.factors[1:], strict=False)
        for begin, end, low, high in lines:
            # Each line begins and ends exactly at its points.
            progress = (done - begin) / (end - begin)
            factor = xp.where(done >= begin, (1.0 - progress) * low + progress * high, factor)
        last = xp.asarray(float(self.factors[-1]), dtype=xp.float64)
        return hyper["lr"] * xp.where(done >= self.milestones[-1], last, factor)
