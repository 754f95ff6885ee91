"""Losses of segmentation: how far two masks are from covering each other."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least
from edgeopt.errors import SignatureError
from edgeopt.losses.base import ArraySpec, Each, Expectation, Loss, require_same_rank
from edgeopt.losses.classes import find_classes, label_spec, labels_among
from edgeopt.losses.numerics import logsumexp, sigmoid

__all__ = ["Dice", "Tversky"]


@dataclass(frozen=True)
class _Overlap(Loss):
    """One minus the overlap of soft masks, for every sample and class, averaged over both.

    Hits Σ p·t, false alarms Σ p·(1 - t) and misses Σ (1 - p)·t are summed over all axes but samples and classes. With
    `binary` p = sigmoid(x) and the target is a mask in the shape of the logits, whose axis 1 holds independent classes;
    else p = softmax(x) along axis 1 and the target holds class labels without that axis, where positions labelled
    `ignore_index` count in no sum. `smooth` keeps empty masks from being 0/0. Since every sample has a loss of its own,
    microbatches add up.

    Raises:
        ConfigurationError: A negative number.
        SignatureError: Logits without axes of samples, classes and positions.
    """

    expects: ClassVar[Expectation] = "logits"

    smooth: float = field(default=1.0, kw_only=True)
    binary: bool = field(default=False, kw_only=True)
    ignore_index: int = field(default=-100, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("smooth", self.smooth, 0.0)

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return the mask, or the labels."""
        name = type(self).__name__
        if len(prediction.shape) < 3:
            raise SignatureError(
                f"{name} compares masks, so it needs logits of samples, classes and positions, but they have shape "
                f"{prediction.shape}"
            )
        if self.binary:
            return (prediction._replace(name=self.target),)
        axis, classes = find_classes(name, prediction.shape, 1, None)
        return (label_spec(prediction, self.target, axis, classes, self.ignore_index),)

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the losses of samples and classes."""
        (target,) = targets
        if self.binary:
            require_same_rank(type(self).__name__, prediction.ndim, target.ndim)
            probability, mask = sigmoid(xp, prediction), target
        else:
            probability, mask = self._soft_masks(xp, prediction, target)
        positions = tuple(range(2, prediction.ndim))
        hit, predicted, wanted = (xp.sum(each, axis=positions) for each in (probability * mask, probability, mask))
        losses = 1.0 - self.overlap(hit, predicted - hit, wanted - hit)
        return Each(losses)

    def _soft_masks(self, xp: Namespace, scores: Array, target: Array) -> tuple[Array, Array]:
        axis, classes = find_classes(type(self).__name__, scores.shape, 1, None)
        labels = labels_among(xp, scores, target, axis, classes, self.ignore_index)
        probability = xp.exp(scores - logsumexp(xp, scores, axis))
        # A label that is no class shows in the loss, as with CrossEntropy.
        probability = xp.where(labels.counted, xp.where(labels.is_class, probability, float("nan")), 0.0)
        return probability, xp.astype(xp.logical_and(labels.one_hot, labels.counted), scores.dtype)

    @abstractmethod
    def overlap(self, hits: Array, false_alarms: Array, misses: Array) -> Array:
        """Return the overlap, 1 where there are neither false alarms nor misses."""


@dataclass(frozen=True)
class Dice(_Overlap):
    """One minus 2·hits/(2·hits + false alarms + misses), with `smooth` added above and below the line.

    The form with sums of p and t, not of their squares (Sudre et al., DLMIA 2017, arXiv:1707.03237, with weights of 1).
    Targets, `binary` and `ignore_index`: the masks are soft, sigmoid(x) or softmax(x), see `Tversky`.
    """

    def overlap(self, hits: Array, false_alarms: Array, misses: Array) -> Array:
        """Return the coefficient."""
        return (2.0 * hits + self.smooth) / (2.0 * hits + false_alarms + misses + self.smooth)


@dataclass(frozen=True)
class Tversky(_Overlap):
    """One minus hits/(hits + alpha·false alarms + beta·misses), with `smooth` added above and below the line.

    Salehi et al., MLMI 2017, arXiv:1706.05721. A beta above alpha asks for recall. With `binary` the masks are
    p = sigmoid(x) and the target is a mask in the shape of the logits, whose axis 1 holds independent classes; else
    p = softmax(x) along axis 1, and the target holds labels without that axis, positions labelled `ignore_index`
    counting nowhere.
    """

    alpha: float = 0.3
    beta: float = 0.7

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("alpha", self.alpha, 0.0)
        at_least("beta", self.beta, 0.0)

    def overlap(self, hits: Array, false_alarms: Array, misses: Array) -> Array:
        """Return the index."""
        return (hits + self.smooth) / (hits + self.alpha * false_alarms + self.beta * misses + self.smooth)
