"""What every schedule provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from edgeopt.array_types import Array, Namespace

__all__ = ["Schedule"]


@dataclass(frozen=True)
class Schedule(ABC):
    """A pure function from the number of completed updates to a learning rate.

    Its numbers are hyperparameters, which means inputs of the exported graph: a device can change the peak rate or the
    length of a run without a new export. The fields only hold their defaults.
    """

    @abstractmethod
    def hyperparameters(self) -> dict[str, float]:
        """Names and default values of the numbers that `__call__` reads from `hyper`."""

    @abstractmethod
    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the learning rate as a 0-d float64 array.

        `hyper` holds this schedule's hyperparameters as 0-d float64 arrays. `step` is a 0-d int64 array and counts
        completed updates: it is 0 for the first one.
        """
