"""Which class is taken for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.errors import SignatureError
from edgeopt.metrics.classes import ClassMetric
from edgeopt.metrics.numerics import count, ratio

__all__ = ["ConfusionMatrix"]


@dataclass(frozen=True)
class ConfusionMatrix(ClassMetric):
    """How many positions of class i were taken for class j: an array of shape (C, C), rows being labels.

    `normalize="true"` divides each row by its sum, so that the diagonal holds recalls, `"pred"` each column, so that it
    holds precisions, and `"all"` everything by the number of positions; rows and columns of nothing are NaN then.
    Events of one kind make a matrix of two classes. An array is reported by evaluation only.

    Raises:
        ConfigurationError: There is no such normalisation.
        SignatureError: The loss has no classes for targets, or takes another axis for that of the classes.
    """

    name: ClassVar[str] = "confusion_matrix"

    normalize: Literal["true", "pred", "all"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        known = (None, "true", "pred", "all")
        require(self.normalize in known, f"normalize must be 'true', 'pred' or 'all', or None, got {self.normalize!r}")

    def check_events(self, loss: str, shape: Sequence[int | str], targets: Sequence[int | str]) -> None:
        """See `ClassMetric`."""
        super().check_events(loss, shape, targets)
        if not self._one_kind(shape):
            raise SignatureError(
                f"ConfusionMatrix is about classes that exclude each other, but {loss} has several events a position, "
                f"in a prediction of shape {tuple(shape)}."
            )

    def sums(self, xp: Namespace, prediction: Array, *targets: Array) -> Mapping[str, Array]:
        """Return the matrix of counts."""
        marks = self.marks(xp, prediction, targets[0])
        if marks.axes is None:
            rows = (xp.logical_not(marks.labelled), marks.labelled)
            columns = (xp.logical_not(marks.predicted), marks.predicted)
            cells = [count(xp, xp.logical_and(row, column), prediction) for row in rows for column in columns]
            return {"counts": xp.reshape(xp.stack(cells), (2, 2))}
        return {"counts": self._matrix(xp, prediction, marks.labelled, marks.predicted)}

    def _matrix(self, xp: Namespace, prediction: Array, labelled: Array, predicted: Array) -> Array:
        axis = self._axis(prediction.shape)
        classes = prediction.shape[axis]
        others = tuple(each for each in range(prediction.ndim) if each != axis)
        dtype = xp.float64 if str(prediction.dtype).endswith("float64") else xp.float32
        rows, columns = (xp.astype(each, dtype) for each in (labelled, predicted))
        # No Transpose stands directly in front of MatMul: ONNX Runtime 1.17 joins them to what it lacks in float64.
        rows = xp.reshape(xp.permute_dims(rows, (axis, *others)), (classes, -1))
        columns = xp.reshape(xp.permute_dims(columns, (*others, axis)), (-1, classes))
        return xp.matmul(rows, columns)

    def value(self, xp: Namespace, sums: Mapping[str, Array]) -> Array:
        """Return the matrix."""
        counts = sums["counts"]
        if self.normalize is None:
            return counts
        whole = {
            "true": lambda: xp.sum(counts, axis=1, keepdims=True),
            "pred": lambda: xp.sum(counts, axis=0, keepdims=True),
            "all": lambda: xp.sum(counts, keepdims=True),
        }[self.normalize]()
        return ratio(xp, counts, whole, xp.greater(whole, 0.0))
