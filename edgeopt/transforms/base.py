"""What every gradient transform provides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgeopt.arguments import Component
from edgeopt.array_types import Array, Namespace
from edgeopt.checks import ranges_of
from edgeopt_runtime.ranges import Range

__all__ = ["Transform"]


@dataclass(frozen=True)
class Transform(metaclass=Component):
    """A pure function of all gradients together, applied before the update rule. Transforms run in the given order."""

    @abstractmethod
    def hyperparameters(self) -> dict[str, float]:
        """Names and default values of the numbers that `__call__` reads from `hyper`."""

    def ranges(self) -> dict[str, Range]:
        """The values that a device may give to these numbers, for those that are not free; see `ranges_of`."""
        return ranges_of(self, self.hyperparameters())

    @abstractmethod
    def __call__(
        self,
        xp: Namespace,
        grads: Sequence[Array],
        params: Sequence[Array],
        hyper: Mapping[str, Array],
        step: Array,
    ) -> tuple[list[Array], dict[str, Array]]:
        """Return the new gradients, in order, and metrics to report with the step.

        `hyper` holds this transform's hyperparameters as 0-d float64 arrays; `step` is 0-d int64 and 1 at the first
        update.
        """
