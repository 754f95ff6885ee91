"""What metrics of classes and of events share: which are predicted, which are there, which positions count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from edgeopt.array_types import Array, Namespace
from edgeopt.errors import SignatureError
from edgeopt.losses import ArraySpec, Loss
from edgeopt.losses.classes import label_spec, labels_among
from edgeopt.metrics.base import Metric
from edgeopt.metrics.numerics import logit

__all__ = ["ClassMetric", "Marks"]


class Marks(NamedTuple):
    """Which classes are predicted and which are there, as booleans in the shape of the logits.

    Attributes:
        predicted: Where a class is the predicted one, or an event is predicted; nowhere where a position is ignored.
        labelled: Where it is that of the label.
        axes: The axes of the positions, all but that of the classes; None for all, where events are of one kind.
    """

    predicted: Array
    labelled: Array
    axes: tuple[int, ...] | None


@dataclass(frozen=True)
class ClassMetric(Metric):
    """A metric of class labels, or of events.

    With labels of classes the largest logit along `class_axis` is the prediction, the first of equal ones. Positions
    labelled `ignore_index` do not count. Both settings mean what they mean in `CrossEntropy`, with the same defaults.

    With logits of independent events, as `BCEWithLogits` has them, a logit above 0 stands for an event whose target is
    above 0.5. `class_axis` then tells the kinds of events apart; a prediction of shape (n,), or (n, 1, ...), has one.
    """

    ignore_index: int = field(default=-100, kw_only=True)
    class_axis: int = field(default=1, kw_only=True)

    def targets(self, prediction: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return class labels, or targets of events of one kind, under the name that was given; see `Metric`."""
        if self.target is None:
            return ()
        if self._one_kind(prediction.shape):
            return (prediction._replace(name=self.target),)
        axis = self._axis(prediction.shape)
        classes = prediction.shape[axis]
        if not isinstance(classes, int):
            raise SignatureError(
                f"{type(self).__name__} needs a fixed number of classes, but the prediction has shape "
                f"{prediction.shape}."
            )
        return (label_spec(prediction, self.target, axis, classes, self.ignore_index),)

    def check(self, loss: Loss | None, prediction: ArraySpec, targets: Sequence[ArraySpec]) -> None:
        """See `Metric`."""
        shape, owner = prediction.shape, type(self).__name__
        kind = owner if loss is None else type(loss).__name__
        if len(targets) != 1:
            raise SignatureError(f"{owner} compares with one target, but {kind} has {len(targets)}.")
        (target,) = targets
        if not target.dtype.startswith(("int", "uint")):
            if loss is not None and loss.expects != "logits":
                raise SignatureError(
                    f"{owner} counts classes, but the targets of {kind} are {target.dtype} numbers of shape "
                    f"{target.shape}. Leave it out, or write the metric that is meant as a class of your own."
                )
            self.check_events(kind, shape, target.shape)
            return
        axis = self._axis(shape)
        loss_axis = getattr(loss, "class_axis", None)
        if loss_axis is not None and loss_axis % len(shape) != axis:
            raise SignatureError(
                f"{kind} has its classes along axis {loss_axis}, {owner} along {self.class_axis}; give "
                f"{owner}(class_axis={loss_axis})."
            )
        if target.shape != shape[:axis] + shape[axis + 1 :]:
            raise SignatureError(
                f"{owner} compares the largest of the logits of shape {shape} along axis {self.class_axis} with "
                f"labels, but the targets of {kind} have shape {target.shape}; give the axis as "
                f"{owner}(class_axis=...)."
            )
        self.check_classes(shape[axis])

    def check_events(self, loss: str, shape: Sequence[int | str], targets: Sequence[int | str]) -> None:
        """Raise `SignatureError` if events of such a shape cannot be counted."""
        if tuple(targets) != tuple(shape):
            raise SignatureError(
                f"{type(self).__name__} compares logits of shape {tuple(shape)} with targets of the same shape, but "
                f"those of {loss} have {tuple(targets)}."
            )
        if not self._one_kind(shape) and not isinstance(shape[self._axis(shape)], int):
            raise SignatureError(
                f"{type(self).__name__} tells kinds of events apart along axis {self.class_axis}, which has no fixed "
                f"length in {tuple(shape)}; give class_axis=..."
            )

    def check_classes(self, classes: int | str) -> None:
        """Raise `SignatureError` if so many classes cannot be counted."""
        if not isinstance(classes, int):
            raise SignatureError(f"{type(self).__name__} needs a fixed number of classes, and there are {classes}.")

    def marks(self, xp: Namespace, prediction: Array, target: Array, threshold: float = 0.5) -> Marks:
        """Find what is predicted and what is there."""
        if target.ndim == prediction.ndim:
            one = self._one_kind(prediction.shape)
            axes = None if one else self._others(prediction)
            return Marks(prediction > logit(threshold), target > 0.5, axes)
        axis = self._axis(prediction.shape)
        classes = prediction.shape[axis]
        labels = labels_among(xp, prediction, target, axis, classes, self.ignore_index)
        largest = xp.expand_dims(xp.argmax(prediction, axis=axis), axis=axis)
        along = (classes,) + (1,) * (prediction.ndim - axis - 1)
        predicted = xp.equal(largest, xp.reshape(xp.arange(classes, dtype=xp.int64), along))
        # The ignored label may itself be a class.
        return Marks(
            xp.logical_and(predicted, labels.counted),
            xp.logical_and(labels.one_hot, labels.counted),
            self._others(prediction),
        )

    def _others(self, prediction: Array) -> tuple[int, ...]:
        axis = self._axis(prediction.shape)
        return tuple(each for each in range(prediction.ndim) if each != axis)

    def _one_kind(self, shape: Sequence[int | str]) -> bool:
        """Whether events of such a shape are all of one kind."""
        rank = len(shape)
        return rank == 1 or (-rank <= self.class_axis < rank and shape[self.class_axis] == 1)

    def _axis(self, shape: Sequence[int | str]) -> int:
        """The class axis, counted from the front."""
        if not -len(shape) <= self.class_axis < len(shape):
            raise SignatureError(
                f"{type(self).__name__} has class_axis={self.class_axis}, but the prediction has shape {tuple(shape)}."
            )
        return self.class_axis % len(shape)
