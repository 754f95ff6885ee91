"""The value of the loss."""

from __future__ import annotations

from collections.abc import Sequence

from edgeopt import tracing as xp
from edgeopt.optimizers import Measurement
from edgeopt.tracing import Array
from edgeopt.training.measurements.passes import Estimator, Passes
from edgeopt.training.updating.groups import Need

__all__ = ["MeanLoss"]


class MeanLoss(Estimator):
    """What `step` reports as `loss`, of all microbatches together."""

    def sums(self, passes: Passes, needs: Sequence[Need]) -> list[Array]:
        """The loss sum, the same for all."""
        return [passes.total for _ in needs]

    def estimate(self, kind: Measurement, total: Array, weight: Array) -> Array:
        """The mean."""
        return total / xp.astype(weight, total.dtype)
