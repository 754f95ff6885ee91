"""Means over batches that do not depend on how the data is cut into batches."""

from __future__ import annotations

import math
from collections.abc import Mapping

from edgeopt_runtime.manifest import Signature

__all__ = ["WeightedMeans"]


class WeightedMeans:
    """Means of the metrics of ``evaluate``, each weighted by what it counts (samples, tokens, sum of class weights).

    Args:
        signature: That of ``evaluate``; it names the weight of each metric.
    """

    def __init__(self, signature: Signature) -> None:
        self._weights = {port.name: port.weight for port in signature.outputs if port.weight is not None}
        self._sums = dict.fromkeys(self._weights, 0.0)
        self._totals = dict.fromkeys(self._weights, 0.0)
        self.batches = 0

    def add(self, values: Mapping[str, float]) -> None:
        """Take in the numbers of one batch."""
        self.batches += 1
        for name, weight_name in self._weights.items():
            weight = values[weight_name]
            # A batch in which nothing counts has the mean 0/0 and the weight 0.
            if weight:
                self._sums[name] += values[name] * weight
                self._totals[name] += weight

    @property
    def counted(self) -> bool:
        """Whether anything has been counted yet."""
        return any(self._totals.values())

    def result(self) -> dict[str, float]:
        """The means so far; NaN where nothing has been counted."""
        return {
            name: total / self._totals[name] if self._totals[name] else math.nan for name, total in self._sums.items()
        }
