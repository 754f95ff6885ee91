"""Rates that rise and fall: many times, or once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, fraction, positive, require
from edgeopt.schedules.base import Schedule
from edgeopt.schedules.progress import half_wave, share

__all__ = ["Cyclic", "OneCycle"]

Mode: TypeAlias = Literal["triangular", "triangular2", "exp_range"]
Anneal: TypeAlias = Literal["cosine", "linear"]


@dataclass(frozen=True)
class Cyclic(Schedule):
    """Straight up from `low`·lr to lr in `up` updates and down again in `down`, over and over (Smith 2017).

    `mode` scales the height of the triangles: "triangular" leaves it, "triangular2" halves it with every cycle,
    "exp_range" multiplies it by gamma^t.

    Same as `torch.optim.lr_scheduler.CyclicLR`, whose `base_lr` is `low`·lr and whose `max_lr` is lr. Source: Smith,
    WACV 2017, arXiv:1506.01186.
    """

    lr: float
    low: float = 0.1
    up: int = 2000
    down: int = 2000
    mode: Mode = "triangular"
    gamma: float = 1.0

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        fraction("low", self.low, closed=True)
        positive("up", self.up)
        positive("down", self.down)
        fraction("gamma", self.gamma, closed=True)
        modes = get_args(Mode)
        require(self.mode in modes, f"mode must be one of {', '.join(modes)}, got {self.mode!r}")

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done, length = xp.astype(step, xp.float64), hyper["up"] + hyper["down"]
        cycle = xp.floor(done / length)
        into = done - cycle * length
        height = xp.where(into <= hyper["up"], into / hyper["up"], (length - into) / hyper["down"])
        if self.mode == "triangular2":
            height = height * xp.asarray(0.5, dtype=xp.float64) ** cycle
        if self.mode == "exp_range":
            height = height * hyper["gamma"] ** done
        return hyper["lr"] * (hyper["low"] + (1.0 - hyper["low"]) * height)


@dataclass(frozen=True)
class OneCycle(Schedule):
    """One rise to `lr` and one fall far below the beginning, in `total` updates (Smith and Topin 2018).

    From lr/`div` to lr during `rise`·total - 1 updates, then to lr/`div`/`final_div` at update total - 1; with
    `three_phases` first back to lr/`div`, as fast as it rose. Each phase follows half a cosine, or a straight line with
    `anneal="linear"`. The rate stays at its last value after the end.

    Same as `torch.optim.lr_scheduler.OneCycleLR` with its `max_lr` as lr. Source: Smith and Topin 2018,
    arXiv:1708.07120.
    """

    lr: float
    total: int
    rise: float = 0.3
    div: float = 25.0
    final_div: float = 1e4
    anneal: Anneal = "cosine"
    three_phases: bool = False

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        for name in ("total", "div", "final_div"):
            positive(name, getattr(self, name))
        fraction("rise", self.rise, closed=True)
        kinds = get_args(Anneal)
        require(self.anneal in kinds, f"anneal must be one of {', '.join(kinds)}, got {self.anneal!r}")

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        done, peak, end = xp.astype(step, xp.float64), hyper["lr"], hyper["total"] - 1.0
        top = hyper["rise"] * hyper["total"] - 1.0
        initial = peak / hyper["div"]
        final = initial / hyper["final_div"]
        if self.three_phases:
            middle = 2.0 * top
            fall = self._between(xp, peak, initial, done - top, middle - top)
            last = self._between(xp, initial, final, done - middle, end - middle)
            falling = xp.where(done <= middle, fall, last)
        else:
            falling = self._between(xp, peak, final, done - top, end - top)
        return xp.where(done <= top, self._between(xp, initial, peak, done, top), falling)

    def _between(self, xp: Namespace, first: Array, last: Array, into: Array, length: Array) -> Array:
        """The rate after `into` of the `length` updates of a phase."""
        remaining = share(xp, length - into, length)
        weight = half_wave(xp, remaining) if self.anneal == "cosine" else remaining
        return last + (first - last) * weight
