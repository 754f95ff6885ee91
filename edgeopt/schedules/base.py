"""What every schedule provides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeAlias

from edgeopt.arguments import Component
from edgeopt.array_types import Array, Namespace
from edgeopt.checks import ranges_of
from edgeopt_runtime.ranges import Range

__all__ = ["Converted", "Schedule", "annotated", "numbers", "static"]

#: See `Component.converted`.
Converted: TypeAlias = Mapping[str, tuple[str, Callable[[Any, Mapping[str, Any]], Any]]]


def static(default: float) -> Any:
    """A number that is fixed when a bundle is made, because it decides first values or which nodes exist."""
    return field(default=default, metadata={"static": True})


def annotated(setting: Field[Any], *types: type) -> bool:
    """Whether a field of a dataclass has one of these types.

    Where a module postpones the evaluation of annotations, a field's type is text.
    """
    return setting.type in types or setting.type in [each.__name__ for each in types]


def numbers(settings: Any) -> dict[str, float]:
    """The numbers of a dataclass that a device may change: fields annotated `float` or `int` that are not static."""
    names = [number.name for number in fields(settings) if annotated(number, float, int)]
    fixed = {number.name for number in fields(settings) if number.metadata.get("static")}
    return {name: float(getattr(settings, name)) for name in names if name not in fixed}


@dataclass(frozen=True)
class Schedule(metaclass=Component):
    """A pure function from the number of completed updates to a learning rate.

    Its numbers are hyperparameters, which means inputs of the exported graph: a device can change the peak rate or the
    length of a run without a new export. The fields only hold their defaults.
    """

    def hyperparameters(self) -> dict[str, float]:
        """Names and default values of the numbers that `__call__` reads from `hyper`."""
        return numbers(self)

    def ranges(self) -> dict[str, Range]:
        """The values that a device may give to these numbers, for those that are not free; see `ranges_of`."""
        return ranges_of(self, self.hyperparameters())

    @property
    def base(self) -> float:
        """The rate that the schedule is built around: its `lr`, which most schedules have as their peak."""
        return self.hyperparameters()["lr"]

    @abstractmethod
    def __call__(self, xp: Namespace, hyper: Mapping[str, Array], step: Array) -> Array:
        """Return the learning rate as a 0-d float64 array.

        `hyper` holds this schedule's hyperparameters as 0-d float64 arrays. `step` is a 0-d int64 array and counts
        completed updates: it is 0 for the first one.
        """
