"""Rates that fall with a power of the step, and rates that hold and then fall."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, fraction, positive, require
from edgeopt.schedules.base import Schedule
from edgeopt.schedules.progress import half_wave, ratio, share

__all__ = ["WSD", "InverseSqrt", "InverseTime", "Noam"]

Decay: TypeAlias = Literal["cosine", "linear", "1-sqrt", "1-square"]


@dataclass(frozen=True)
class InverseSqrt(Schedule):
    """Linear rise over `warmup` updates to `lr`, then lr·√(S/(t - warmup + S)).

    S is `timescale`, or the warm-up if that is 0. Same as `get_inverse_sqrt_schedule` of Hugging Face transformers.
    """

    lr: float
    warmup: int
    timescale: int = 0

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        at_least("warmup", self.warmup, 0)
        at_least("timescale", self.timescale, 0)
        require(self.warmup > 0 or self.timescale > 0, "without a warmup there must be a timescale")

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done, warmup = xp.astype(step, xp.float64), hyper["warmup"]
        scale = xp.where(hyper["timescale"] > 0, hyper["timescale"], warmup)
        # Before the end of the warm-up the root is not used; there it may not see a negative number.
        after = xp.sqrt(scale / (xp.maximum(done - warmup, xp.zeros_like(done)) + scale))
        return hyper["lr"] * xp.where(done < warmup, ratio(xp, done, warmup), after)


@dataclass(frozen=True)
class InverseTime(Schedule):
    """lr/(1 + decay·t), the schedule of Robbins and Monro."""

    lr: float
    decay: float

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        at_least("decay", self.decay, 0.0)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        return hyper["lr"] / (1.0 + hyper["decay"] * xp.astype(step, xp.float64))


@dataclass(frozen=True)
class Noam(Schedule):
    """The schedule of the Transformer (Vaswani et al., NeurIPS 2017, arXiv:1706.03762).

    With n = t + 1, the number of the update, and lr a factor of the whole::

        lr·width^(-1/2)·min(n^(-1/2), n·warmup^(-3/2))
    """

    lr: float = 1.0
    width: int = 512
    warmup: int = 4000

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        positive("width", self.width)
        positive("warmup", self.warmup)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        number = xp.astype(step, xp.float64) + 1.0
        factor = xp.minimum(number**-0.5, number * hyper["warmup"] ** -1.5)
        return hyper["lr"] * hyper["width"] ** -0.5 * factor


@dataclass(frozen=True)
class WSD(Schedule):
    """Warm-up, stable, decay: rise to `lr`, hold it, and fall to `final`·lr (Hu et al. 2024, arXiv:2404.06395).

    The three phases last `warmup`, `stable` and `decay` updates. The rise is a straight line from `final`·lr, so the
    first update does not stand still unless `final` is 0. With q the share of the decay that is done, `shape` is
    "cosine" ((1 + cos πq)/2), "linear" (1 - q), "1-sqrt" (1 - √q) or "1-square" (1 - q²); `final` compresses it.

    Same as `get_wsd_schedule` of Hugging Face transformers with a linear warm-up.
    """

    lr: float
    warmup: int
    stable: int
    decay: int
    shape: Decay = "cosine"
    final: float = 0.0

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        for name in ("warmup", "stable", "decay"):
            at_least(name, getattr(self, name), 0)
        fraction("final", self.final, closed=True)
        shapes = get_args(Decay)
        require(self.shape in shapes, f"shape must be one of {', '.join(shapes)}, got {self.shape!r}")

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        begin = hyper["warmup"] + hyper["stable"]
        rising = xp.where(done < hyper["warmup"], ratio(xp, done, hyper["warmup"]), xp.ones_like(done))
        ending = xp.where(done < begin + hyper["decay"], self._falling(xp, hyper, done - begin), xp.zeros_like(done))
        factor = xp.where(done < begin, rising, ending)
        return hyper["lr"] * (hyper["final"] + (1.0 - hyper["final"]) * factor)

    def _falling(self, xp: Namespace, hyper: Mapping[str, Array], into: Array) -> Array:
        done = share(xp, into, hyper["decay"])
        if self.shape == "cosine":
            return half_wave(xp, 1.0 - done)
        if self.shape == "linear":
            return 1.0 - done
        return 1.0 - (xp.sqrt(done) if self.shape == "1-sqrt" else done * done)
