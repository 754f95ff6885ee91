"""What does not depend on where the threshold lies: areas under curves over many of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.errors import SignatureError
from edgeopt.losses.numerics import log_softmax, sigmoid
from edgeopt.metrics.classes import ClassMetric
from edgeopt.metrics.numerics import count, mean_of_defined, one_of, wide

__all__ = ["AUROC", "AveragePrecision", "CurveMetric"]


@dataclass(frozen=True)
class CurveMetric(ClassMetric):
    """Counts of hits and false alarms at `thresholds` probabilities, evenly spaced from 0 to 1.

    What has a probability of at least the threshold is predicted. So the area is that of probabilities rounded down to
    multiples of 1/(thresholds - 1): the exact one where no two samples that differ fall together, and as a rule within
    1/thresholds of it. torchmetrics calls this binned, and has the same thresholds.

    Of logits of events the probability is their sigmoid. Of two classes the metric is about class 1, of more it is the
    mean over the classes, each against the others, of those that have both kinds of samples; `average="none"` gives an
    array of them. Several kinds of events are taken like classes. A class without samples, or without others, is NaN.

    The counts take `thresholds` comparisons for each logit, which many classes make expensive.

    Raises:
        ConfigurationError: There are less than two thresholds, or no such average.
        SignatureError: The loss has no classes or events for targets, or takes another axis for that of the classes.
    """

    thresholds: int = 200
    average: Literal["macro", "none"] = "macro"

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = isinstance(self.thresholds, int) and self.thresholds >= 2
        require(ok, f"thresholds must be a whole number from 2, got {self.thresholds!r}")
        require(self.average in ("macro", "none"), f"average must be 'macro' or 'none', got {self.average!r}")

    def check_classes(self, classes: int | str) -> None:
        """See `ClassMetric`."""
        super().check_classes(classes)
        if classes == 1:
            raise SignatureError(f"{type(self).__name__} tells classes apart, and there is one.")

    def sums(self, xp: Namespace, prediction: Array, *targets: Array) -> Mapping[str, Array]:
        """Return hits and false alarms at each threshold, of shape (classes, thresholds); of class 1 alone of two."""
        scores, marks = wide(xp, prediction), self.marks(xp, prediction, targets[0])
        there, absent = marks.labelled, xp.logical_not(marks.labelled)
        if targets[0].ndim == prediction.ndim:
            probability, alone = sigmoid(xp, scores), False
        else:
            axis = self._axis(prediction.shape)
            probability, alone = xp.exp(log_softmax(xp, scores, axis)), prediction.shape[axis] == 2
            absent = xp.logical_and(absent, xp.expand_dims(xp.not_equal(targets[0], self.ignore_index), axis=axis))
        rows, there, absent = (_rows(xp, each, marks.axes) for each in (probability, there, absent))
        if alone and self.average == "macro":
            rows, there, absent = (one_of(xp, each, 1) for each in (rows, there, absent))
        thresholds = xp.asarray(np.linspace(0.0, 1.0, self.thresholds), dtype=probability.dtype)
        # (classes, samples, thresholds)
        above = xp.expand_dims(rows, axis=2) >= xp.reshape(thresholds, (1, 1, self.thresholds))
        return {
            name: count(xp, xp.logical_and(above, xp.expand_dims(each, axis=2)), scores, axis=(1,))
            for name, each in (("hits", there), ("false_alarms", absent))
        }

    def value(self, xp: Namespace, sums: Mapping[str, Array]) -> Array:
        """Return the area, or those of the classes."""
        found = self.area(xp, sums["hits"], sums["false_alarms"])
        return found if self.average == "none" else mean_of_defined(xp, found)

    @abstractmethod
    def area(self, xp: Namespace, hits: Array, false_alarms: Array) -> Array:
        """Return the area of each row. At the first threshold, 0, everything is predicted."""


@dataclass(frozen=True)
class AUROC(CurveMetric):
    """Area under the curve of the share of hits over that of false alarms; see `edgeopt.metrics.CurveMetric`.

    It is the probability that a sample of the class has a higher score than another one, those that fall together
    counting one half.
    """

    name: ClassVar[str] = "auroc"

    def area(self, xp: Namespace, hits: Array, false_alarms: Array) -> Array:
        """Return the sum of trapezoids."""
        present, absent = one_of(xp, hits, 0, axis=1), one_of(xp, false_alarms, 0, axis=1)
        between = false_alarms - _next(xp, false_alarms)
        doubled = xp.sum(between * (hits + _next(xp, hits)), axis=1)
        return doubled / (2.0 * xp.squeeze(present * absent, axis=1))


@dataclass(frozen=True)
class AveragePrecision(CurveMetric):
    """Σ over thresholds of (what recall gains there) · precision; see `edgeopt.metrics.CurveMetric`.

    Without interpolation, as scikit-learn's `average_precision_score`.
    """

    name: ClassVar[str] = "average_precision"

    def area(self, xp: Namespace, hits: Array, false_alarms: Array) -> Array:
        """Return the sum."""
        predicted = hits + false_alarms
        precision = hits / xp.where(predicted > 0.0, predicted, xp.ones_like(predicted))
        gained = xp.sum((hits - _next(xp, hits)) * precision, axis=1)
        present, absent = one_of(xp, hits, 0, axis=1), one_of(xp, false_alarms, 0, axis=1)
        # Without other samples every order is right.
        both = xp.squeeze(xp.where(absent > 0.0, present, xp.zeros_like(present)), axis=1)
        return gained / xp.where(both > 0.0, both, xp.full_like(both, xp.nan))


def _rows(xp: Namespace, array: Array, axes: tuple[int, ...] | None) -> Array:
    """An array as a matrix with a row for each class, or with one for all."""
    if axes is None:
        return xp.reshape(array, (1, -1))
    (axis,) = (each for each in range(array.ndim) if each not in axes)
    return xp.reshape(xp.permute_dims(array, (axis, *axes)), (array.shape[axis], -1))


def _next(xp: Namespace, counts: Array) -> Array:
    """The counts at the next threshold; beyond 1 nothing is predicted."""
    rest = xp.take(counts, xp.asarray(np.arange(1, counts.shape[1])), axis=1)
    return xp.concat([rest, xp.zeros_like(one_of(xp, counts, 0, axis=1))], axis=1)
