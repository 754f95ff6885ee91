"""Straight lines and powers of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, fraction, positive, require
from edgeopt.schedules.base import Schedule
from edgeopt.schedules.progress import check_warmup, share, warmed_up

__all__ = ["REX", "Linear", "PiecewiseLinear", "Polynomial"]


@dataclass(frozen=True)
class Linear(Schedule):
    """A straight line from `start`·lr to `end`·lr over `total` updates, and `end`·lr from then on.

    Same as `torch.optim.lr_scheduler.LinearLR`.
    """

    lr: float
    total: int = 5
    start: float = 1.0 / 3.0
    end: float = 1.0

    def __post_init__(self) -> None:
        positive("total", self.total)
        for name in ("lr", "start", "end"):
            at_least(name, getattr(self, name), 0.0)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = share(xp, xp.astype(step, xp.float64), hyper["total"])
        return hyper["lr"] * (hyper["start"] + (hyper["end"] - hyper["start"]) * done)


@dataclass(frozen=True)
class Polynomial(Schedule):
    """Linear rise over `warmup` updates to `lr`, then a power of the rest down to `final`·lr after `total` updates.

    With t completed updates, W = warmup, T = total and p = min(1, (t-W)/(T-W))::

        lr·t/W                                        for t < W
        lr·(final + (1 - final)·(1 - p)^power)        otherwise

    Without a warm-up and with `final=0` the same as `torch.optim.lr_scheduler.PolynomialLR`; with them as
    `get_polynomial_decay_schedule_with_warmup` of Hugging Face transformers, whose `lr_end` is `final`·lr.
    """

    lr: float
    total: int
    power: float = 1.0
    warmup: int = 0
    final: float = 0.0

    def __post_init__(self) -> None:
        check_warmup(self.lr, self.warmup, self.total)
        positive("power", self.power)
        fraction("final", self.final, closed=True)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        remaining = share(xp, hyper["total"] - done, hyper["total"] - hyper["warmup"])
        factor = hyper["final"] + (1.0 - hyper["final"]) * remaining ** hyper["power"]
        return hyper["lr"] * warmed_up(xp, done, hyper["warmup"], factor)


@dataclass(frozen=True)
class REX(Schedule):
    """Reflected exponential decay over `total` updates to `final`·lr (Chen et al., MLSys 2022, arXiv:2107.04197).

    With z = min(1, t/total)::

        lr·(final + (1 - final)·(1 - z)/(1 - z/2))
    """

    lr: float
    total: int
    final: float = 0.0

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        positive("total", self.total)
        fraction("final", self.final, closed=True)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        remaining = share(xp, hyper["total"] - xp.astype(step, xp.float64), hyper["total"])
        # 1 - z/2 = (1 + remaining)/2
        return hyper["lr"] * (hyper["final"] + (1.0 - hyper["final"]) * remaining / (0.5 + 0.5 * remaining))


@dataclass(frozen=True)
class PiecewiseLinear(Schedule):
    """Straight lines between the points (`steps`, `factors`·lr); constant before the first and after the last.

    The points are static. A trapezoid, for example, is `steps=(0, 100, 900, 1000)` and `factors=(0, 1, 1, 0)`.

    Raises:
        ConfigurationError: The steps do not rise, or there are not as many factors.
    """

    lr: float
    steps: tuple[int, ...]
    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        require(
            isinstance(self.steps, tuple) and isinstance(self.factors, tuple) and len(self.steps) > 0,
            "steps and factors must be tuples of at least one number",
        )
        require(len(self.steps) == len(self.factors), "there must be as many factors as steps")
        for factor in self.factors:
            at_least("factors", factor, 0.0)
        rising = all(before < after for before, after in zip(self.steps, self.steps[1:], strict=False))
        require(rising and self.steps[0] >= 0, f"steps must rise from 0 or more, got {self.steps!r}")

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        factor = xp.asarray(float(self.factors[0]), dtype=xp.float64)
        lines = zip(self.steps, self.steps[1:], self.factors, self.factors[1:], strict=False)
        for begin, end, low, high in lines:
            # Each line begins and ends exactly at its points.
            progress = (done - begin) / (end - begin)
            factor = xp.where(done >= begin, (1.0 - progress) * low + progress * high, factor)
        last = xp.asarray(float(self.factors[-1]), dtype=xp.float64)
        return hyper["lr"] * xp.where(done >= self.steps[-1], last, factor)
