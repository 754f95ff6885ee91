"""Share of positions whose class is predicted, or is among the likeliest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.errors import SignatureError
from edgeopt.losses.classes import labels_among
from edgeopt.metrics.base import MeanMetric
from edgeopt.metrics.classes import ClassMetric
from edgeopt.metrics.numerics import count

__all__ = ["Accuracy", "TopKAccuracy"]


@dataclass(frozen=True)
class Accuracy(ClassMetric, MeanMetric):
    """Share of labelled positions whose largest logit along `class_axis` is that of the label.

    Of equal logits the first wins. Positions labelled `ignore_index` do not count; any other label that is no class
    counts as wrong. `class_axis` and `ignore_index` mean what they mean in `CrossEntropy` and have the same defaults.

    With `BCEWithLogits` and one logit for each position (a vector, or a class axis of length 1), a logit above 0 stands
    for the class whose target is above 0.5. Several logits could be several classes or several labels, so they are
    refused; `F1` and its like count several labels.

    Raises:
        SignatureError: The loss has no classes for targets, or takes another axis for that of the classes.
    """

    name: ClassVar[str] = "accuracy"

    def check_events(self, loss: str, shape: Sequence[int | str], targets: Sequence[int | str]) -> None:
        """See `ClassMetric`."""
        if tuple(targets) != tuple(shape) or not self._one_kind(shape):
            raise SignatureError(
                f"Accuracy with {loss} needs one logit for each position, a prediction of shape (n,) or (n, 1), "
                f"but it has shape {tuple(shape)}. For classes that exclude each other train with CrossEntropy; for "
                "several labels a position take F1, or write the metric that is meant as a class of your own."
            )

    def check_classes(self, classes: int | str) -> None:
        """See `ClassMetric`: any number can be compared."""

    def terms(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Return the number of correct positions and the number of counted ones."""
        (target,) = targets
        if target.ndim == prediction.ndim:
            correct = xp.equal(prediction > 0, target > 0.5)
            return count(xp, correct, prediction), count(xp, xp.ones_like(prediction), prediction)
        labelled = xp.not_equal(target, self.ignore_index)
        # The logical_and matters if ignore_index is itself a class.
        correct = xp.logical_and(labelled, xp.equal(xp.argmax(prediction, axis=self.class_axis), target))
        return count(xp, correct, prediction), count(xp, labelled, prediction)


@dataclass(frozen=True)
class TopKAccuracy(ClassMetric, MeanMetric):
    """Share of labelled positions whose label is among the `k` classes with the largest logits.

    Of equal logits the first come first, as in `Accuracy`, which is the case of k = 1. It is reported as
    `top_5_accuracy`, or whatever `k` is. Other labels than classes and `ignore_index` count as wrong.

    Raises:
        ConfigurationError: `k` is no number from 1.
        SignatureError: See `Accuracy`; or there are not as many as `k` classes.
    """

    name: ClassVar[str] = "top_k_accuracy"

    k: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(isinstance(self.k, int) and self.k >= 1, f"k must be a whole number from 1, got {self.k!r}")

    @property
    def reported(self) -> str:
        """The name under which it is reported."""
        return self.label or f"top_{self.k}_accuracy"

    def check_events(self, loss: str, shape: Sequence[int | str], targets: Sequence[int | str]) -> None:
        """See `ClassMetric`."""
        raise SignatureError(f"TopKAccuracy compares classes by labels, and the targets of {loss} are none.")

    def check_classes(self, classes: int | str) -> None:
        """See `ClassMetric`."""
        super().check_classes(classes)
        if isinstance(classes, int) and classes < self.k:
            raise SignatureError(f"TopKAccuracy has k={self.k}, but there are {classes} classes.")

    def terms(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Return the number of positions with the label among the first, and the number of counted ones."""
        (target,) = targets
        axis = self._axis(prediction.shape)
        classes = prediction.shape[axis]
        labels = labels_among(xp, prediction, target, axis, classes, self.ignore_index)
        own = labels.of_label(xp, prediction)
        along = xp.reshape(xp.arange(classes, dtype=xp.int64), (classes,) + (1,) * (prediction.ndim - axis - 1))
        # Said so that a logit of NaN is in front, and with it the position wrong.
        behind = xp.logical_or(prediction < own, xp.logical_and(xp.equal(prediction, own), along > labels.label))
        ahead = xp.logical_not(xp.logical_or(behind, labels.one_hot))
        place = count(xp, ahead, prediction, axis=(axis,), keepdims=True)
        # An ignored label may be a class.
        counted = xp.logical_and(labels.counted, labels.is_class)
        return count(xp, xp.logical_and(counted, place < self.k), prediction), count(xp, labels.counted, prediction)
