"""Rates that rise and fall: many times, or once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, fraction, positive, require
from edgeopt.schedules.base import Schedule
from edgeopt.schedules.progress import half_wave

__all__ = ["Cyclic", "OneCycle"]

Mode: TypeAlias = Literal["triangular", "triangular2", "exp_range"]
Anneal: TypeAlias = Literal["cos", "linear"]


@dataclass(frozen=True)
class Cyclic(Schedule):
    """Straight up from `base_lr` to lr and down again, over and over (Smith 2017).

    Up takes `step_size_up` updates, down `step_size_down`, as many if it is left out. `mode` scales the height of the
    triangles: "triangular" leaves it, "triangular2" halves it with every cycle, "exp_range" multiplies it by gamma^t.

    Same as `torch.optim.lr_scheduler.CyclicLR` with its `max_lr` as lr. Source: Smith, WACV 2017, arXiv:1506.01186.
    """

    lr: float
    base_lr: float
    step_size_up: int = 2000
    step_size_down: int | None = None
    mode: Mode = "triangular"
    gamma: float = 1.0

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        at_least("base_lr", self.base_lr, 0.0)
        require(self.base_lr <= self.lr, f"base_lr={self.base_lr!r} lies above lr={self.lr!r}, the highest rate")
        positive("step_size_up", self.step_size_up)
        positive("step_size_down", self.step_size_up if self.step_size_down is None else self.step_size_down)
        fraction("gamma", self.gamma, closed=True)
        modes = get_args(Mode)
        require(self.mode in modes, f"mode must be one of {', '.join(modes)}, got {self.mode!r}")

    def hyperparameters(self) -> dict[str, float]:
        """Return the numbers, with the way down as long as the way up where it is left out."""
        down = self.step_size_up if self.step_size_down is None else self.step_size_down
        return {**super().hyperparameters(), "step_size_down": float(down)}

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        up, down, low = hyper["step_size_up"], hyper["step_size_down"], hyper["base_lr"]
        done, length = xp.astype(step, xp.float64), up + down
        cycle = xp.floor(done / length)
        into = done - cycle * length
        height = xp.where(into <= up, into / up, (length - into) / down)
        if self.mode == "triangular2":
            height = height * xp.asarray(0.5, dtype=xp.float64) ** cycle
        if self.mode == "exp_range":
            height = height * hyper["gamma"] ** done
        return low + (hyper["lr"] - low) * height


@dataclass(frozen=True)
class OneCycle(Schedule):
    """One rise to `lr` and one fall far below the beginning, in `total_steps` updates (Smith and Topin 2018).

    From lr/`div_factor` to lr during `pct_start`·total_steps - 1 updates, then to lr/`div_factor`/`final_div_factor` at
    update total_steps - 1; with `three_phase` first back to lr/`div_factor`, as fast as it rose. Each phase follows
    half a cosine, or a straight line with `anneal_strategy="linear"`. The rate stays at its last value after the end.

    Same as `torch.optim.lr_scheduler.OneCycleLR` with its `max_lr` as lr. Source: Smith and Topin 2018,
    arXiv:1708.07120.
    """

    lr: float
    total_steps: int
    pct_start: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    anneal_strategy: Anneal = "cos"
    three_phase: bool = False

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        for name in ("total_steps", "div_factor", "final_div_factor"):
            positive(name, getattr(self, name))
        fraction("pct_start", self.pct_start, closed=True)
        kinds = get_args(Anneal)
        require(
            self.anneal_strategy in kinds,
            f"anneal_strategy must be one of {', '.join(kinds)}, got {self.anneal_strategy!r}",
        )

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        peak, end = hyper["lr"], hyper["total_steps"] - 1.0
        done = xp.minimum(xp.astype(step, xp.float64), end)
        top = hyper["pct_start"] * hyper["total_steps"] - 1.0
        initial = peak / hyper["div_factor"]
        final = initial / hyper["final_div_factor"]
        if self.three_phase:
            middle = 2.0 * top
            fall = self._between(xp, peak, initial, done - top, middle - top)
            last = self._between(xp, initial, final, done - middle, end - middle)
            falling = xp.where(done <= middle, fall, last)
        else:
            falling = self._between(xp, peak, final, done - top, end - top)
        return xp.where(done <= top, self._between(xp, initial, peak, done, top), falling)

    def _between(self, xp: Namespace, first: Array, last: Array, into: Array, length: Array) -> Array:
        """The rate after `into` of the `length` updates of a phase."""
        # A phase may be shorter than one update; one that has no length is over.
        whole = xp.where(length > 0, length, xp.ones_like(length))
        remaining = xp.clip((length - into) / whole, 0.0, 1.0)
        weight = half_wave(xp, remaining) if self.anneal_strategy == "cos" else remaining
        return last + (first - last) * weight
