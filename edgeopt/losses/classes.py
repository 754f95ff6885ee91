"""What losses of integer class labels share: where the classes are, which is the label's, which positions count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edgeopt.array_types import Array, Namespace
from edgeopt.errors import SignatureError
from edgeopt.losses.base import ArraySpec

__all__ = ["MANY_CLASSES", "Labels", "find_classes", "label_spec", "labels_among"]


#: From so many classes on, a few passes over all of them are worth an operator that some providers lack.
MANY_CLASSES = 128


class Labels(NamedTuple):
    """Labels beside the scores of classes. Every array keeps the class axis, with length 1, to line up with them.

    Attributes:
        axis: The class axis, counted from the front.
        classes: How many there are.
        one_hot: Where a class is the label's.
        label: The label, or another class where it is none.
        is_class: Where the label is a class.
        counted: Where the label is not the ignored one.
    """

    axis: int
    classes: int
    one_hot: Array
    label: Array
    is_class: Array
    counted: Array

    def of_label(self, xp: Namespace, values: Array) -> Array:
        """The value of the label's class at each position; 0 where there is none.

        A selection and not a product with the one-hot matrix: scores of -inf (masked classes) must not give NaN.
        """
        return self.over_classes(xp, xp.where(self.one_hot, values, 0.0))

    def score_of_label(self, xp: Namespace, scores: Array) -> Array:
        """The same of an array that has a value for each class of each position, gathered where that pays."""
        if self.classes < MANY_CLASSES:
            return self.of_label(xp, scores)
        return xp.where(self.is_class, xp.take_along_axis(scores, self.label, axis=self.axis), 0.0)

    def over_classes(self, xp: Namespace, values: Array) -> Array:
        """The sum over all classes."""
        return xp.sum(values, axis=self.axis, keepdims=True)

    def along_classes(self, xp: Namespace, numbers: Sequence[float], scores: Array) -> Array:
        """One number for each class, as an array that lines up with the scores and has their dtype."""
        shape = (self.classes,) + (1,) * (scores.ndim - self.axis - 1)
        return xp.reshape(xp.asarray(numbers, dtype=scores.dtype), shape)

    def counting(self, xp: Namespace, losses: Array) -> Array:
        """The losses of the positions that count, 0 elsewhere; NaN where a label that counts is no class."""
        return xp.where(self.counted, xp.where(self.is_class, losses, float("nan")), 0.0)


def find_classes(owner: str, shape: Sequence[int | str], axis: int, weight: Sequence[float] | None) -> tuple[int, int]:
    """The class axis of scores, counted from the front, and the number of classes.

    Raises:
        SignatureError: No such axis, an unknown number of classes, or another number than weights.
    """
    rank = len(shape)
    if not -rank <= axis < rank:
        raise SignatureError(f"{owner} has class_axis={axis}, but the logits have shape {shape}")
    classes = shape[axis % rank]
    if not isinstance(classes, int):
        raise SignatureError(f"{owner} needs a fixed number of classes, but the logits have shape {shape}")
    if weight is not None and len(weight) != classes:
        raise SignatureError(f"{owner} has {len(weight)} class weights, but there are {classes} classes")
    return axis % rank, classes


def label_spec(prediction: ArraySpec, name: str, axis: int, classes: int, ignored: int) -> ArraySpec:
    """The labels: int64, in the shape of the scores without the class axis."""
    shape = prediction.shape[:axis] + prediction.shape[axis + 1 :]
    return ArraySpec(name, "int64", shape, classes, ignored)


def labels_among(xp: Namespace, scores: Array, target: Array, axis: int, classes: int, ignored: int) -> Labels:
    """Labels beside scores.

    The one-hot matrix is a comparison with a range, because few GPU and NPU providers have OneHot or gathers with a
    gradient. Among many classes it would be larger than all else: there the label's score is gathered.
    """
    along_classes = (classes,) + (1,) * (scores.ndim - axis - 1)
    label = xp.expand_dims(target, axis=axis)
    one_hot = xp.equal(label, xp.reshape(xp.arange(classes, dtype=xp.int64), along_classes))
    nearest = xp.clip(label, 0, classes - 1)
    return Labels(axis, classes, one_hot, nearest, xp.equal(nearest, label), xp.not_equal(label, ignored))
