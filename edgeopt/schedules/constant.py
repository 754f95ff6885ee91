"""The same learning rate at every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least
from edgeopt.schedules.base import Schedule

__all__ = ["Constant", "as_schedule"]


@dataclass(frozen=True)
class Constant(Schedule):
    """The learning rate `lr` at every step. A plain number given to an optimizer becomes this."""

    lr: float

    def __post_init__(self) -> None:
        at_least("lr", self.lr, 0.0)

    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the rate unchanged."""
        return hyper["lr"]


def as_schedule(lr: Schedule | float) -> Schedule:
    """Return a schedule as it is, and a number as a `Constant`.

    Raises `ConfigurationError` if the number is negative or not finite.
    """
    return lr if isinstance(lr, Schedule) else Constant(lr)
