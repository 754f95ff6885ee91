"""Rates that fall with a power of the step, and rates that hold and then fall."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, fraction, positive, require
from edgeopt.schedules.base import Schedule
from edgeopt.schedules.progress import half_wave, ratio, share, warmed_up

__all__ = ["WSD", "InverseSqrt", "InverseTime", "Noam"]

Decay: TypeAlias = Literal["cosine", "linear", "1-sqrt", "1-square"]


@dataclass(frozen=True)
class InverseSqrt(Schedule):
    """Linear rise over `warmup_steps` updates to `lr`, then lr·√(S/(t - warmup_steps + S)).

    S is `timescale`, or the warm-up if that is 0. Same as `get_inverse_sqrt_schedule` of Hugging Face transformers.
    """

    lr: float
    warmup_steps: int
    timescale: int = 0

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        at_least("warmup_steps", self.warmup_steps, 0)
        at_least("timescale", self.timescale, 0)
        require(self.warmup_steps > 0 or self.timescale > 0, "without a warmup there must be a timescale")

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done, warmup = xp.astype(step, xp.float64), hyper["warmup_steps"]
        scale = xp.where(hyper["timescale"] > 0, hyper["timescale"], warmup)
        # Before the end of the warm-up the root is not used; there it may not see a negative number.
        after = xp.sqrt(scale / (xp.maximum(done - warmup, xp.zeros_like(done)) + scale))
        return hyper["lr"] * xp.where(done < warmup, ratio(xp, done, warmup), after)


@dataclass(frozen=True)
class InverseTime(Schedule):
    """lr/(1 + decay_rate·t/decay_steps), the schedule of Robbins and Monro; Keras's `InverseTimeDecay`."""

    lr: float
    decay_rate: float
    decay_steps: int = 1

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        at_least("decay_rate", self.decay_rate, 0.0)
        positive("decay_steps", self.decay_steps)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        return hyper["lr"] / (1.0 + hyper["decay_rate"] * (xp.astype(step, xp.float64) / hyper["decay_steps"]))


@dataclass(frozen=True)
class Noam(Schedule):
    """The schedule of the Transformer (Vaswani et al., NeurIPS 2017, arXiv:1706.03762).

    With n = t + 1, the number of the update, and lr a factor of the whole::

        lr·d_model^(-1/2)·min(n^(-1/2), n·warmup_steps^(-3/2))
    """

    lr: float = 1.0
    d_model: int = 512
    warmup_steps: int = 4000

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        positive("d_model", self.d_model)
        positive("warmup_steps", self.warmup_steps)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        number = xp.astype(step, xp.float64) + 1.0
        factor = xp.minimum(number**-0.5, number * hyper["warmup_steps"] ** -1.5)
        return hyper["lr"] * hyper["d_model"] ** -0.5 * factor


@dataclass(frozen=True)
class WSD(Schedule):
    """Warm-up, stable, decay: rise to `lr`, hold it, and fall to `min_lr_ratio`·lr (Hu et al. 2024, arXiv:2404.06395).

    The three phases last `warmup_steps`, `stable_steps` and `decay_steps` updates. The rise is a straight line from
    `min_lr_ratio`·lr, so the first update does not stand still unless `min_lr_ratio` is 0. With q the share of the
    decay that is done, `decay_type` is "cosine" ((1 + cos πq)/2), "linear" (1 - q), "1-sqrt" (1 - √q) or "1-square" (1
    - q²); `min_lr_ratio` compresses it.

    Same as `get_wsd_schedule` of Hugging Face transformers with a linear warm-up.
    """

    lr: float
    warmup_steps: int
    stable_steps: int
    decay_steps: int
    decay_type: Decay = "cosine"
    min_lr_ratio: float = 0.0

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        for name in ("warmup_steps", "stable_steps", "decay_steps"):
            at_least(name, getattr(self, name), 0)
        fraction("min_lr_ratio", self.min_lr_ratio, closed=True)
        shapes = get_args(Decay)
        require(self.decay_type in shapes, f"decay_type must be one of {', '.join(shapes)}, got {self.decay_type!r}")

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done = xp.astype(step, xp.float64)
        begin = hyper["warmup_steps"] + hyper["stable_steps"]
        rising = warmed_up(xp, done, hyper["warmup_steps"], xp.ones_like(done))
        falling = self._falling(xp, hyper, done - begin)
        ending = xp.where(done < begin + hyper["decay_steps"], falling, xp.zeros_like(done))
        factor = xp.where(done < begin, rising, ending)
        return hyper["lr"] * (hyper["min_lr_ratio"] + (1.0 - hyper["min_lr_ratio"]) * factor)

    def _falling(self, xp: Namespace, hyper: Mapping[str, Array], into: Array) -> Array:
        done = share(xp, into, hyper["decay_steps"])
        if self.decay_type == "cosine":
            return half_wave(xp, 1.0 - done)
        if self.decay_type == "linear":
            return 1.0 - done
        return 1.0 - (xp.sqrt(done) if self.decay_type == "1-sqrt" else done * done)
