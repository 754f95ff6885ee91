"""Rates that fall in steps or by a constant factor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, positive, require
from edgeopt.schedules.base import Schedule

__all__ = ["Exponential", "MultiStep", "PiecewiseConstant", "Step"]


@dataclass(frozen=True)
class Step(Schedule):
    """The rate times `gamma` after every `step_size` updates: lr·gamma^⌊t/step_size⌋.

    Same as `torch.optim.lr_scheduler.StepLR`, and as `optax.exponential_decay` with `staircase`.
    """

    lr: float
    step_size: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        positive("step_size", self.step_size)
        at_least("gamma", self.gamma, 0.0)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        return hyper["lr"] * hyper["gamma"] ** xp.floor(xp.astype(step, xp.float64) / hyper["step_size"])


@dataclass(frozen=True)
class MultiStep(Schedule):
    """The rate times `gamma` once for each of the `milestones` that t has reached.

    The milestones are static. Same as `torch.optim.lr_scheduler.MultiStepLR`.
    """

    lr: float
    milestones: Sequence[int]
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
class PiecewiseConstant(Schedule):
    """A rate for each stretch between milestones: lr·factors[n] once t has reached n of them.

    Milestones and factors are static. Same as `optax.piecewise_constant_schedule`, whose scales multiply each other,
    and as `PiecewiseConstantDecay` of Keras with the milestones its boundaries plus 1.

    Raises:
        ConfigurationError: The milestones fall, or there is not one factor more than milestones.
    """

    lr: float
    milestones: Sequence[int]
    factors: Sequence[float]

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        require(
            isinstance(self.milestones, tuple) and isinstance(self.factors, tuple),
            "milestones and factors must be tuples",
        )
        require(len(self.factors) == len(self.milestones) + 1, "there must be one factor more than milestones")
        for milestone in self.milestones:
            at_least("milestones", milestone, 0)
        for factor in self.factors:
            at_least("factors", factor, 0.0)
        require(list(self.milestones) == sorted(self.milestones), f"milestones must rise, got {self.milestones!r}")

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        factor = xp.asarray(float(self.factors[0]), dtype=xp.float64)
        for milestone, later in zip(self.milestones, self.factors[1:], strict=True):
            factor = xp.where(step >= milestone, xp.asarray(float(later), dtype=xp.float64), factor)
        return hyper["lr"] * factor


@dataclass(frozen=True)
class Exponential(Schedule):
    """The rate times `gamma` in every `decay_steps` updates, smoothly and down to a floor.

    ::

        lr·max(gamma^(t/decay_steps), min_lr_ratio)

    Same as `torch.optim.lr_scheduler.ExponentialLR` with `decay_steps=1`, and as `optax.exponential_decay`.
    """

    lr: float
    gamma: float
    decay_steps: int = 1
    min_lr_ratio: float = 0.0

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)
        positive("gamma", self.gamma)
        positive("decay_steps", self.decay_steps)
        at_least("min_lr_ratio", self.min_lr_ratio, 0.0)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        factor = hyper["gamma"] ** (xp.astype(step, xp.float64) / hyper["decay_steps"])
        return hyper["lr"] * xp.maximum(factor, hyper["min_lr_ratio"])
