"""Schedules made of schedules."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import positive, require
from edgeopt.schedules.base import Schedule
from edgeopt_runtime.ranges import Range

__all__ = ["Product", "Sequential"]


@dataclass(frozen=True)
class _Composite(Schedule):
    """Several schedules, each with its own hyperparameters: `0.lr`, `1.lr` and so on."""

    schedules: Sequence[Schedule]

    def __post_init__(self) -> None:
        require(
            isinstance(self.schedules, tuple)
            and len(self.schedules) > 0
            and all(isinstance(part, Schedule) for part in self.schedules),
            f"schedules must be a tuple of schedules, got {self.schedules!r}",
        )

    def hyperparameters(self) -> dict[str, float]:
        """Return the numbers of every part, each name behind the part's position."""
        return {
            f"{place}.{name}": value
            for place, part in enumerate(self.schedules)
            for name, value in part.hyperparameters().items()
        }

    def ranges(self) -> dict[str, Range]:
        """Return the ranges of every part's numbers."""
        return {
            f"{place}.{name}": allowed
            for place, part in enumerate(self.schedules)
            for name, allowed in part.ranges().items()
        }

    def _rate(self, xp: Namespace, place: int, hyper: Mapping[str, Array], step: Array) -> Array:
        part = self.schedules[place]
        return part(xp, {name: hyper[f"{place}.{name}"] for name in part.hyperparameters()}, step)


@dataclass(frozen=True)
class Sequential(_Composite):
    """One schedule after the other: part n+1 takes over after `milestones[n]` updates, and begins at its own 0.

    The milestones are static. Same as `torch.optim.lr_scheduler.SequentialLR`.

    Raises:
        ConfigurationError: There is not one milestone between each two parts, or they do not rise.
    """

    milestones: Sequence[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        require(isinstance(self.milestones, tuple), f"milestones must be a tuple, got {self.milestones!r}")
        require(len(self.milestones) == len(self.schedules) - 1, "there must be one milestone between each two parts")
        for milestone in self.milestones:
            positive("milestones", milestone)
        rising = all(before < after for before, after in zip(self.milestones, self.milestones[1:], strict=False))
        require(rising, f"milestones must rise, got {self.milestones!r}")

    @property
    def base(self) -> float:
        """The largest rate that a part is built around."""
        return max(part.base for part in self.schedules)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        rate = self._rate(xp, 0, hyper, step)
        for place, milestone in enumerate(self.milestones, 1):
            # Until its turn a part is asked for its beginning, which every part has.
            begun = step >= milestone
            local = xp.where(begun, step - milestone, xp.zeros_like(step))
            rate = xp.where(begun, self._rate(xp, place, hyper, local), rate)
        return rate


@dataclass(frozen=True)
class Product(_Composite):
    """All schedules at once, multiplied: one gives the rate, the others, built around 1, are factors of it.

    What `torch.optim.lr_scheduler.ChainedScheduler` does with schedulers of one optimizer.
    """

    @property
    def base(self) -> float:
        """The product of the rates that the parts are built around."""
        return reduce(operator.mul, (part.base for part in self.schedules))

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate of the update that follows `step` completed ones."""
        return reduce(operator.mul, (self._rate(xp, place, hyper, step) for place in range(len(self.schedules))))
