"""Cross-entropy of logits against class indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import fraction, number_tuple
from edgeopt.losses.base import ArraySpec, Each, Expectation, Loss
from edgeopt.losses.classes import MANY_CLASSES, find_classes, label_spec, labels_among
from edgeopt.losses.numerics import log_softmax, logsumexp

__all__ = ["CrossEntropy"]


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Cross-entropy of unnormalised logits against integer class labels.

    With logits x, label y, class weights w (all 1 by default), C classes and smoothing s, a position costs::

        (1 - s)·w_y·(log Σ exp(x) - x_y)  +  s/C · Σ_c w_c·(log Σ exp(x) - x_c)

    and weighs w_y in the mean. Positions labelled `ignore_index` cost and weigh nothing; if there is no other, the mean
    is 0/0 = NaN. Semantics and defaults of `torch.nn.functional.cross_entropy` with class indices.

    Logits have their classes along `class_axis`: 1 for images of any number of spatial dimensions, -1 for language
    models. Labels are int64 in the shape of the logits without that axis. `weight` may be any sequence or array.

    A label that is neither a class nor `ignore_index` is an error in torch. A session refuses it too; the graph by
    itself, which cannot raise, gives a loss of NaN, and the gradients of the other positions as they are.

    Raises:
        ConfigurationError: Negative weights, or smoothing outside [0, 1].
        SignatureError: Logits without that axis, of an unknown number of classes, or of another number than weights.
    """

    expects: ClassVar[Expectation] = "scores"

    weight: Sequence[float] | None = None
    label_smoothing: float = 0.0
    ignore_index: int = -100
    class_axis: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("label_smoothing", self.label_smoothing, closed=True)
        if self.weight is not None:
            object.__setattr__(self, "weight", number_tuple("weight", self.weight))

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return the labels: int64, in the logits' shape without the class axis."""
        axis, classes = find_classes("CrossEntropy", prediction.shape, self.class_axis, self.weight)
        return (label_spec(prediction, self.target, axis, classes, self.ignore_index),)

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the positions' losses and what they weigh."""
        (target,) = targets
        axis, classes = find_classes("CrossEntropy", prediction.shape, self.class_axis, self.weight)
        labels = labels_among(xp, prediction, target, axis, classes, self.ignore_index)

        log_total: Array | float
        if classes < MANY_CLASSES:
            scores, log_total = prediction, logsumexp(xp, prediction, axis)
        else:
            # An operator that some GPU and NPU providers lack, and the fastest on a CPU.
            scores, log_total = log_softmax(xp, prediction, axis), 0.0
        loss = log_total - labels.score_of_label(xp, scores)
        if self.weight is not None:
            class_weight = labels.along_classes(xp, self.weight, prediction)
            label_weight = labels.of_label(xp, class_weight)
            loss = label_weight * loss
        if self.label_smoothing:
            if self.weight is None:
                smooth = float(classes) * log_total - labels.over_classes(xp, scores)
            else:
                smooth = float(sum(self.weight)) * log_total - labels.over_classes(xp, class_weight * scores)
            loss = (1.0 - self.label_smoothing) * loss + (self.label_smoothing / classes) * smooth

        counts = xp.astype(labels.counted, prediction.dtype)
        return Each(labels.counting(xp, loss), counts if self.weight is None else counts * label_weight)
