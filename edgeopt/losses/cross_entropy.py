"""Cross-entropy of logits against class indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import fraction, number_tuple
from edgeopt.errors import SignatureError
from edgeopt.losses.base import ArraySpec, Expectation, Loss
from edgeopt.losses.numerics import logsumexp

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

    The one-hot matrix is a comparison with a range, because few GPU and NPU providers have OneHot or gathers with a
    gradient.

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

    def targets(self, prediction: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return the labels: int64, in the logits' shape without the class axis."""
        axis, classes = self._classes(prediction.shape)
        shape = prediction.shape[:axis] + prediction.shape[axis + 1 :]
        return (ArraySpec(self.target, "int64", shape, classes, self.ignore_index),)

    def _classes(self, shape: Sequence[int | str]) -> tuple[int, int]:
        """Return the class axis, counted from the front, and the number of classes."""
        rank = len(shape)
        if not -rank <= self.class_axis < rank:
            raise SignatureError(f"CrossEntropy has class_axis={self.class_axis}, but the logits have shape {shape}")
        axis = self.class_axis % rank
        classes = shape[axis]
        if not isinstance(classes, int):
            raise SignatureError(f"CrossEntropy needs a fixed number of classes, but the logits have shape {shape}")
        if self.weight is not None and len(self.weight) != classes:
            raise SignatureError(f"CrossEntropy has {len(self.weight)} class weights, but there are {classes} classes")
        return axis, classes

    def sum_and_weight(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Sum the positions' losses and their weights."""
        (target,) = targets
        axis, classes = self._classes(prediction.shape)
        along_classes = (classes,) + (1,) * (prediction.ndim - axis - 1)

        # The class axis stays, with length 1, until the last sum: every array then lines up with the logits.
        label = xp.expand_dims(target, axis=axis)
        one_hot = xp.equal(label, xp.reshape(xp.arange(classes, dtype=xp.int64), along_classes))

        def over_classes(values: Array) -> Array:
            return xp.sum(values, axis=axis, keepdims=True)

        log_total = logsumexp(xp, prediction, axis)
        # A selection and not a product with the one-hot matrix: logits of -inf (masked classes) must not give NaN.
        loss = log_total - over_classes(xp.where(one_hot, prediction, 0.0))

        if self.weight is not None:
            class_weight = xp.reshape(xp.asarray(self.weight, dtype=prediction.dtype), along_classes)
            label_weight = over_classes(xp.where(one_hot, class_weight, 0.0))
            loss = label_weight * loss
        if self.label_smoothing:
            if self.weight is None:
                smooth = float(classes) * log_total - over_classes(prediction)
            else:
                smooth = float(sum(self.weight)) * log_total - over_classes(class_weight * prediction)
            loss = (1.0 - self.label_smoothing) * loss + (self.label_smoothing / classes) * smooth

        is_class = xp.equal(xp.clip(label, 0, classes - 1), label)
        counted = xp.not_equal(label, self.ignore_index)
        loss = xp.where(counted, xp.where(is_class, loss, float("nan")), 0.0)
        counts = xp.astype(counted, prediction.dtype)
        return xp.sum(loss), xp.sum(counts if self.weight is None else counts * label_weight)
