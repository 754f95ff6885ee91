"""Precision, recall and what is made of them: how far what is predicted and what is there are the same."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.errors import SignatureError
from edgeopt.metrics.classes import ClassMetric
from edgeopt.metrics.numerics import count, mean_of_defined, one_of, ratio

__all__ = ["F1", "Average", "IoU", "OverlapMetric", "Precision", "Recall"]

Average: TypeAlias = Literal["auto", "binary", "micro", "macro", "none"]


@dataclass(frozen=True)
class OverlapMetric(ClassMetric):
    """A ratio of three counts of each class: hits h, predictions p and labels t.

    `average` says what is made of the classes:

    - ``"binary"``: the ratio of class 1 of two; or of all events together, where the loss has those.
    - ``"macro"``: the mean of the classes' ratios, over those that are labelled or predicted anywhere.
    - ``"micro"``: the ratio of the counts' sums over all classes.
    - ``"none"``: an array of the classes' ratios, which evaluation reports.
    - ``"auto"``: ``"binary"`` of two classes and of events of one kind, else ``"macro"``.

    A class that is neither labelled nor predicted anywhere has the ratio NaN, and is left out of the mean; other ratios
    0/0 are 0. That is what scikit-learn has, whose `zero_division` is 0 then, and torchmetrics.

    `threshold` is the probability above which an event is predicted. Of classes the likeliest one is.

    Raises:
        ConfigurationError: There is no such average, or the threshold is not between 0 and 1.
        SignatureError: The loss has no classes or events for targets, or takes another axis for that of the classes.
    """

    average: Average = "auto"
    threshold: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        averages = ("auto", "binary", "micro", "macro", "none")
        require(self.average in averages, f"average must be one of {', '.join(averages)}, got {self.average!r}")
        require(0.0 < self.threshold < 1.0, f"threshold must be between 0 and 1, got {self.threshold!r}")

    def check_events(self, loss: str, shape: Sequence[int | str], targets: Sequence[int | str]) -> None:
        """See `ClassMetric`."""
        # Together events need no axis that tells them apart.
        if tuple(targets) != tuple(shape) or not self._together(shape):
            super().check_events(loss, shape, targets)

    def check_classes(self, classes: int | str) -> None:
        """See `ClassMetric`."""
        super().check_classes(classes)
        if self.average == "binary" and classes != 2:
            raise SignatureError(
                f"{type(self).__name__}(average='binary') is about class 1 of two, and there are {classes} classes; "
                "give average='macro', 'micro' or 'none'."
            )

    def sums(self, xp: Namespace, prediction: Array, *targets: Array) -> Mapping[str, Array]:
        """Return the three counts of each class, vectors; of class 1 alone where only that is asked for."""
        marks = self.marks(xp, prediction, targets[0], self.threshold)
        events = targets[0].ndim == prediction.ndim
        axes = None if events and self._together(prediction.shape) else marks.axes
        one_of_two = not events and self.average in ("auto", "binary") and prediction.shape[self.class_axis] == 2
        counts = {
            "hits": xp.logical_and(marks.predicted, marks.labelled),
            "predicted": marks.predicted,
            "labelled": marks.labelled,
        }
        vectors = {name: xp.reshape(count(xp, each, prediction, axis=axes), (-1,)) for name, each in counts.items()}
        return {name: one_of(xp, vector, 1) for name, vector in vectors.items()} if one_of_two else vectors

    def value(self, xp: Namespace, sums: Mapping[str, Array]) -> Array:
        """Return the ratio, or those of the classes."""
        counts = [sums[name] for name in ("hits", "predicted", "labelled")]
        if self.average == "micro":
            counts = [xp.sum(each, axis=0, keepdims=True) for each in counts]
        part, whole = self.ratio(*counts)
        found = ratio(xp, part, whole, counts[1] + counts[2] > 0.0)
        return found if self.average == "none" else mean_of_defined(xp, found)

    @abstractmethod
    def ratio(self, hits: Array, predicted: Array, labelled: Array) -> tuple[Array, Array]:
        """Return numerator and denominator."""

    def _together(self, shape: Sequence[int | str]) -> bool:
        """Whether events are counted without regard to their kind."""
        return self.average in ("binary", "micro") or self._one_kind(shape)


@dataclass(frozen=True)
class Precision(OverlapMetric):
    """h / p: the share of what was predicted that is right. See `edgeopt.metrics.OverlapMetric` for the settings."""

    name: ClassVar[str] = "precision"

    def ratio(self, hits: Array, predicted: Array, labelled: Array) -> tuple[Array, Array]:
        """Return hits and predictions."""
        return hits, predicted


@dataclass(frozen=True)
class Recall(OverlapMetric):
    """h / t: the share of what is there that was found. See `edgeopt.metrics.OverlapMetric` for the settings."""

    name: ClassVar[str] = "recall"

    def ratio(self, hits: Array, predicted: Array, labelled: Array) -> tuple[Array, Array]:
        """Return hits and labels."""
        return hits, labelled


@dataclass(frozen=True)
class F1(OverlapMetric):
    """2h / (p + t): the harmonic mean of precision and recall. See `edgeopt.metrics.OverlapMetric` for the settings."""

    name: ClassVar[str] = "f1"

    def ratio(self, hits: Array, predicted: Array, labelled: Array) -> tuple[Array, Array]:
        """Return twice the hits, and all."""
        return 2.0 * hits, predicted + labelled


@dataclass(frozen=True)
class IoU(OverlapMetric):
    """h / (p + t - h), intersection over union, of whole data sets and not of images: Jaccard's index.

    `average="macro"`, the default of more than two classes, is the mIoU of segmentation. See
    `edgeopt.metrics.OverlapMetric` for the settings.
    """

    name: ClassVar[str] = "iou"

    def ratio(self, hits: Array, predicted: Array, labelled: Array) -> tuple[Array, Array]:
        """Return intersection and union."""
        return hits, predicted + labelled - hits
