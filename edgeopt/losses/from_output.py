"""A loss that the model computes itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.errors import SignatureError
from edgeopt.losses.base import ArraySpec, Each, Loss

__all__ = ["FromOutput"]


@dataclass(frozen=True)
class FromOutput(Loss):
    """An output of the model that is a loss already, such as `loss` of a model of transformers that is given labels.

    The labels are inputs of the model then. Those that nothing else depends on, and the loss itself, are no part of
    predictions: `predict` takes no labels. Metrics read labels by name: `Accuracy(output="logits", target="labels")`.

    An output with one number for each sample, or each position, is averaged over them, and accumulation is exact. A
    single number is taken for a mean, and microbatches are put together by what it is the mean of:

    - `weight` is another output of the model, a single number that says how many were counted;
    - `counted` is an input of the model, of whose elements those that are not `ignored` were counted. With `shifted`
      the first of each sequence was not, as in models that predict the next token;
    - otherwise it is the samples, which an export says: the first axis of `rows`, an output of the model; by default
      of the first one that has axes.

    A mean over nothing, in a microbatch without labels, is NaN in the model already, and stays so.

    With `reduction="sum"` a single number is the sum that it is.

    Raises:
        ConfigurationError: Settings contradict each other.
    """

    output: str = "loss"
    weight: str | None = field(default=None, kw_only=True)
    counted: str | None = field(default=None, kw_only=True)
    ignored: int = field(default=-100, kw_only=True)
    shifted: bool = field(default=False, kw_only=True)
    rows: str | None = field(default=None, kw_only=True)
    #: The labels of the model, once it is known.
    known: tuple[ArraySpec, ...] | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.output), "output must name an output of the model")
        counts = [name for name in ("weight", "counted", "rows") if getattr(self, name) is not None]
        require(len(counts) < 2 or self.known is not None, f"give one of {' and '.join(counts)}: each says the weight")
        require(not self.shifted or self.counted is not None, "shifted is about labels: name the input with counted=")

    def hidden(self) -> tuple[str, ...]:
        """Return the outputs that are no predictions."""
        return (self.output,) if self.weight is None else (self.output, self.weight)

    def settled(self, default: str, outputs: Mapping[str, ArraySpec], inputs: Mapping[str, ArraySpec]) -> Loss:
        """Return the loss that knows the model's labels, and where the number of samples is read off."""
        found = replace(self, known=tuple(inputs.values()))
        if self.counted is not None and self.counted not in inputs:
            raise SignatureError(
                f"FromOutput counts in {self.counted!r}, which is none of the model's labels; these are {list(inputs)}."
            )
        if self.output not in outputs or outputs[self.output].shape:
            return replace(found, weight=None, counted=None, shifted=False, rows=None)
        if self.weight or self.counted or self.rows or self.reduction == "sum":
            return found
        rows = next((name for name, spec in outputs.items() if spec.shape and name != self.output), None)
        if rows is None:
            raise SignatureError(
                f"The model returns the loss {self.output!r} as a single number, and nothing that the number of "
                "samples could be read off. Let it return one number for each sample, or name an output that counts "
                "them: weight='...'."
            )
        return replace(found, rows=rows)

    def assumptions(self) -> tuple[str, ...]:
        """Return that a single number is taken for a mean over samples."""
        if self.rows is None or self.reduction == "sum":
            return ()
        return (
            f"The output {self.output!r} is a single number, and is taken for the mean over the samples, the rows of "
            f"{self.rows!r}. Where it is a mean over something else, say so with weight= or counted=: accumulation and "
            "evaluation put batches together by it.",
        )

    def outputs(self) -> tuple[str | None, ...]:
        """Return the loss, and the output that says what it is the mean of."""
        others = (self.weight, self.rows)
        return (self.output, *(name for name in others if name is not None))

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return the model's labels.

        Raises:
            SignatureError: The loss is no floating-point tensor, or what counts is no single number.
        """
        if not prediction.dtype.startswith(("float", "bfloat")):
            raise SignatureError(f"The output {prediction.name!r} is {prediction.dtype}, and a loss is a real number.")
        if self.weight is not None and others[0].shape:
            raise SignatureError(f"The output {self.weight!r} of shape {list(others[0].shape)} is no single number.")
        return self.known or ()

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the model's losses, if it returns several.

        Raises:
            SignatureError: It is a single number.
        """
        if not prediction.ndim:
            raise SignatureError(f"The output {self.output!r} is a single number: sample_weight cannot weigh samples.")
        return Each(prediction)

    def sum_and_weight(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Return the sum that the model's mean was made of, and what it was divided by."""
        if prediction.ndim:
            return super().sum_and_weight(xp, prediction, *targets)
        if self.reduction == "sum":
            return prediction, xp.ones_like(prediction)
        weight = xp.astype(self._count(xp, *targets), prediction.dtype)
        return prediction * weight, weight

    def _count(self, xp: Namespace, *targets: Array) -> Array:
        if self.counted is None:
            return targets[0] if self.weight is not None else _length(xp, targets[0])
        names = [spec.name for spec in self.known or ()]
        labels = targets[names.index(self.counted)]
        counts = xp.astype(xp.not_equal(labels, self.ignored), xp.float32)
        if not self.shifted:
            return xp.sum(counts)
        first = xp.asarray([0], dtype=xp.int64)
        return xp.sum(counts) - xp.sum(xp.take(counts, first, axis=labels.ndim - 1))


def _length(xp: Namespace, array: Array) -> Array:
    """The length of the first axis."""
    if hasattr(array, "tracer"):
        return xp.sum(array.tracer.emit("Shape", array, start=0, end=1))
    return xp.asarray(array.shape[0])
