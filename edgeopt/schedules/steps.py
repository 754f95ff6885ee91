"""Rates that fall in steps or by a constant factor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, positive, require
from edgeopt.schedules.base import Schedule

__all__ = ["Exponential", "MultiStep", "Step"]


@dataclass(frozen=True)
class Step(Schedule):
    """The rate times `gamma` after every `size` updates: lr·gamma^⌊t/size⌋.

    Same as `torch.optim.lr_scheduler.StepLR`, and as `optax.exponential_decay` with `staircase`.
    """

    lr: float
    size: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        positive("size", self.size)
        at_least("gamma", self.gamma, 0.0)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        return hyper["lr"] * hyper["gamma"] ** xp.floor(xp.astype(step, xp.float64) / hyper["size"])


@dataclass(frozen=True)
class MultiStep(Schedule):
    """The rate times `gamma` once for each of the `milestones` that t has reached.

    The milestones are static. Same as `torch.optim.lr_scheduler.MultiStepLR`.
    """

    lr: float
    milestones: tuple[int, ...]
    gamma: float = 0.1

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        at_least("gamma", self.gamma, 0.0)
        require(isinstance(self.milestones, tuple), f"milestones must be a tuple, got {self.milestones!r}")
        for milestone in self.milestones:
            at_least("milestones", milestone, 0)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        milestones = xp.asarray(np.asarray(self.milestones, np.float64))
        reached = xp.astype(xp.astype(step, xp.float64) >= milestones, xp.float64)
        return hyper["lr"] * hyper["gamma"] ** xp.sum(reached)


@dataclass(frozen=True)
class Exponential(Schedule):
    """The rate times `gamma` in every `every` updates, smoothly and down to a floor: lr·max(gamma^(t/every), final).

    Same as `torch.optim.lr_scheduler.ExponentialLR` with `every=1`, and as `optax.exponential_decay`.
    """

    lr: float
    gamma: float
    every: int = 1
    final: float = 0.0

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        positive("gamma", self.gamma)
        positive("every", self.every)
        at_least("final", self.final, 0.0)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        factor = hyper["gamma"] ** (xp.astype(step, xp.float64) / hyper["every"])
        return hyper["lr"] * xp.maximum(factor, hyper["final"])
