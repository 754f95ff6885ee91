"""Share of positions whose largest logit is that of the label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.metrics.base import Metric

__all__ = ["Accuracy"]


@dataclass(frozen=True)
class Accuracy(Metric):
    """Share of labelled positions whose largest logit along `class_axis` is that of the label.

    Of equal logits the first wins. Positions labelled `ignore_index` do not count; any other label that is no class
    counts as wrong. `class_axis` and `ignore_index` mean what they mean in `CrossEntropy` and have the same defaults.
    """

    name: ClassVar[str] = "accuracy"

    ignore_index: int = -100
    class_axis: int = 1

    def terms(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Return the number of correct positions and the number of counted ones."""
        (target,) = targets
        counted = xp.not_equal(target, self.ignore_index)
        # The logical_and matters if ignore_index is itself a class.
        correct = xp.logical_and(counted, xp.equal(xp.argmax(prediction, axis=self.class_axis), target))
        return xp.sum(xp.astype(correct, prediction.dtype)), xp.sum(xp.astype(counted, prediction.dtype))
