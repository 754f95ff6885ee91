"""Losses of class labels beside cross-entropy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import number_tuple, positive, require
from edgeopt.losses.base import ArraySpec, Each, Expectation, Loss
from edgeopt.losses.classes import Labels, find_classes, label_spec, labels_among
from edgeopt.losses.numerics import logsumexp

__all__ = ["NLL", "Focal", "MultiMargin", "check_focus"]


@dataclass(frozen=True)
class _ClassLoss(Loss):
    """A loss of scores against class labels, position by position.

    Axis, ignored label and label that is no class mean what they mean in `CrossEntropy`.
    """

    weight: Sequence[float] | None = None
    ignore_index: int = -100
    class_axis: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight is not None:
            object.__setattr__(self, "weight", number_tuple("weight", self.weight))

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return the labels: int64, in the scores' shape without the class axis."""
        axis, classes = find_classes(type(self).__name__, prediction.shape, self.class_axis, self.weight)
        return (label_spec(prediction, self.target, axis, classes, self.ignore_index),)

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the positions' losses, each times the weight of its class, and what each weighs."""
        (target,) = targets
        axis, classes = find_classes(type(self).__name__, prediction.shape, self.class_axis, self.weight)
        labels = labels_among(xp, prediction, target, axis, classes, self.ignore_index)
        loss = self.positions(xp, prediction, labels)
        counts = xp.astype(labels.counted, prediction.dtype)
        if self.weight is None:
            return Each(labels.counting(xp, loss), counts)
        weight = labels.of_label(xp, labels.along_classes(xp, self.weight, prediction))
        return Each(labels.counting(xp, weight * loss), counts * weight if self.mean_by_weight else counts)

    #: Whether the mean divides by the sum of the weights, and not by the number of positions.
    mean_by_weight: ClassVar[bool] = False

    @abstractmethod
    def positions(self, xp: Namespace, scores: Array, labels: Labels) -> Array:
        """Return the loss of every position, the class axis kept with length 1."""


@dataclass(frozen=True)
class NLL(_ClassLoss):
    """Negative log-likelihood of log-probabilities: -w_y·x_y, weighing w_y in the mean.

    Same as `torch.nn.functional.nll_loss`. Of logits take `CrossEntropy`, which normalises them.
    """

    expects: ClassVar[Expectation] = "log-probabilities"
    mean_by_weight: ClassVar[bool] = True

    def positions(self, xp: Namespace, scores: Array, labels: Labels) -> Array:
        """Return the losses."""
        return -labels.score_of_label(xp, scores)


@dataclass(frozen=True)
class Focal(_ClassLoss):
    """Cross-entropy that counts less where the label is likely already: -w_y·(1 - p_y)^gamma·log p_y, p = softmax(x).

    Lin et al., ICCV 2017, arXiv:1708.02002, equation 5 with their alpha_t as `weight`; the mean is over positions,
    whatever they weigh. With gamma = 0 and without weights it is `CrossEntropy`. 1 - p_y is taken as the sum of
    the other probabilities, since a difference from 1 loses its digits.

    Raises:
        ConfigurationError: gamma between 0 and 1, where the gradient of a certain position is infinite, or below 0.
    """

    expects: ClassVar[Expectation] = "scores"

    gamma: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_focus(self.gamma)

    def positions(self, xp: Namespace, scores: Array, labels: Labels) -> Array:
        """Return the losses."""
        log_probabilities = scores - logsumexp(xp, scores, labels.axis)
        loss = -labels.of_label(xp, log_probabilities)
        if not self.gamma:
            return loss
        others = xp.where(labels.one_hot, 0.0, xp.exp(log_probabilities))
        return labels.over_classes(xp, others) ** self.gamma * loss


@dataclass(frozen=True)
class MultiMargin(_ClassLoss):
    """Hinge loss of several classes: Σ_{c≠y} w_y·max(0, margin - x_y + x_c)^p / C, averaged over positions.

    Same as `torch.nn.functional.multi_margin_loss` (Crammer and Singer 2001 sum no other classes but the worst).

    Raises:
        ConfigurationError: p other than 1 and 2.
    """

    p: Literal[1, 2] = 1
    margin: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.p in (1, 2), f"p must be 1 or 2, got {self.p!r}")
        positive("margin", self.margin)

    def positions(self, xp: Namespace, scores: Array, labels: Labels) -> Array:
        """Return the losses."""
        excess = self.margin - labels.of_label(xp, scores) + scores
        # max(excess, 0) has half its slope at 0 in some autodiffs, and torch has none: a selection says so.
        excess = xp.where(xp.logical_or(labels.one_hot, excess <= 0.0), 0.0, excess)
        return labels.over_classes(xp, excess if self.p == 1 else excess * excess) / float(labels.classes)


def check_focus(gamma: float) -> None:
    """Require a gamma with a finite gradient everywhere. Raises `ConfigurationError`."""
    require(gamma == 0 or gamma >= 1, f"gamma must be 0 or at least 1, got {gamma!r}")
