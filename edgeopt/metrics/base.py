"""What every metric provides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from edgeopt.arguments import Component
from edgeopt.array_types import Array, Namespace
from edgeopt.losses import ArraySpec, Loss

__all__ = ["Metric"]


@dataclass(frozen=True)
class Metric(metaclass=Component):
    """A sum and a weight, whose quotient is the metric, over the prediction and the loss's own targets.

    As with losses, sums and weights of batches add up, so the metric of a data set does not depend on its batching.
    """

    #: Name under which the metric is reported, and its key in the registry.
    name: ClassVar[str]

    def check(self, loss: Loss, prediction: ArraySpec, targets: Sequence[ArraySpec]) -> None:  # optional
        """Raise `SignatureError` if the metric cannot work on such a prediction with the targets of this loss."""

    @abstractmethod
    def terms(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Return the metric's sum and its weight, both 0-d in the prediction's dtype."""
