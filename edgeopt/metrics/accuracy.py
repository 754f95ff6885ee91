"""Share of positions whose class is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.errors import SignatureError
from edgeopt.losses import ArraySpec, CrossEntropy, Loss
from edgeopt.metrics.base import MeanMetric

__all__ = ["Accuracy"]


@dataclass(frozen=True)
class Accuracy(MeanMetric):
    """Share of labelled positions whose largest logit along `class_axis` is that of the label.

    Of equal logits the first wins. Positions labelled `ignore_index` do not count; any other label that is no class
    counts as wrong. `class_axis` and `ignore_index` mean what they mean in `CrossEntropy` and have the same defaults.

    With `BCEWithLogits` and one logit for each position (a vector, or a class axis of length 1), a logit above 0 stands
    for the class whose target is above 0.5. Several logits could be several classes or several labels, so they are
    refused.

    Raises:
        SignatureError: The loss has no classes for targets, or takes another axis for that of the classes.
    """

    name: ClassVar[str] = "accuracy"

    ignore_index: int = -100
    class_axis: int = 1

    def check(self, loss: Loss, prediction: ArraySpec, targets: Sequence[ArraySpec]) -> None:
        """See `Metric`."""
        shape, rank = prediction.shape, len(prediction.shape)
        kind = type(loss).__name__
        if len(targets) != 1:
            raise SignatureError(f"Accuracy compares with one target, but {kind} has {len(targets)}.")
        (target,) = targets
        if not target.dtype.startswith(("int", "uint")):
            if loss.expects != "logits":
                raise SignatureError(
                    f"Accuracy counts classes, but the targets of {kind} are {target.dtype} numbers of shape "
                    f"{target.shape}. Leave it out, or write the metric that is meant as a class of your own."
                )
            if target.shape != shape or not (rank == 1 or (self._has_axis(rank) and shape[self.class_axis] == 1)):
                raise SignatureError(
                    f"Accuracy with {kind} needs one logit for each position, a prediction of shape (n,) or (n, 1), "
                    f"but it has shape {shape}. For classes that exclude each other train with CrossEntropy; for "
                    "several labels a position, write the metric that is meant as a class of your own."
                )
            return
        if not self._has_axis(rank):
            raise SignatureError(f"Accuracy has class_axis={self.class_axis}, but the prediction has shape {shape}.")
        axis = self.class_axis % rank
        if isinstance(loss, CrossEntropy) and loss.class_axis % rank != axis:
            raise SignatureError(
                f"{kind} has its classes along axis {loss.class_axis}, Accuracy along {self.class_axis}; give "
                f"Accuracy(class_axis={loss.class_axis})."
            )
        if target.shape != shape[:axis] + shape[axis + 1 :]:
            raise SignatureError(
                f"Accuracy compares the largest of the logits of shape {shape} along axis {self.class_axis} with "
                f"labels, but the targets of {kind} have shape {target.shape}; give the axis as "
                "Accuracy(class_axis=...)."
            )

    def terms(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Return the number of correct positions and the number of counted ones."""
        (target,) = targets
        if target.ndim == prediction.ndim:
            correct = xp.equal(prediction > 0, target > 0.5)
            counted = xp.ones_like(prediction)
            return xp.sum(xp.astype(correct, prediction.dtype)), xp.sum(counted)
        labelled = xp.not_equal(target, self.ignore_index)
        # The logical_and matters if ignore_index is itself a class.
        correct = xp.logical_and(labelled, xp.equal(xp.argmax(prediction, axis=self.class_axis), target))
        return xp.sum(xp.astype(correct, prediction.dtype)), xp.sum(xp.astype(labelled, prediction.dtype))

    def _has_axis(self, rank: int) -> bool:
        return -rank <= self.class_axis < rank
