"""What every loss provides, and how it is reduced."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, TypeAlias

from edgeopt.arguments import Component
from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.errors import SignatureError

__all__ = ["ArraySpec", "Each", "ElementwiseLoss", "Expectation", "Loss", "require_same_rank"]

#: What a loss takes its prediction for: real numbers; logits of independent events; scores of classes, of which only
#: the differences count, so that log-probabilities are scores too; or those, whose exponentials add up to 1.
Expectation: TypeAlias = Literal["values", "logits", "scores", "log-probabilities"]


class ArraySpec(NamedTuple):
    """A tensor.

    Attributes:
        name: Its name.
        dtype: numpy's name of its element type.
        shape: Its dimensions, each a number, or a name if it is not fixed.
        classes: Of a tensor of class labels how many classes there are; others are refused before a step.
        ignored: A label that may stand there besides.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    classes: int | None = None
    ignored: int | None = None


class Each(NamedTuple):
    """The losses that make up a loss, and what each of them weighs in the mean: 1 where there are no weights.

    Both arrays have the samples along their first axis; weights are broadcast to the values.
    """

    values: Array
    weights: Array | None = None


@dataclass(frozen=True)
class Loss(metaclass=Component):
    """A sum and a weight, whose quotient is the loss.

    Kept apart, sums and weights of microbatches add up to those of the whole batch exactly, however the classes,
    ignored positions and lengths are spread over them.

    `reduction="mean"` divides by the weight the loss defines: the number of elements, or the sum of class weights. With
    `reduction="sum"` the weight of a batch is 1, so accumulating k microbatches gives the mean of their k sums.

    `target` is the name of the batch input that holds the targets. `output` is the name of the model's output that the
    loss reads; by default the first one, or what `edgeopt.export(output=...)` says. `sample_weight` names one more
    batch input, a number for each sample that multiplies the sample's losses and what they weigh in the mean.

    Losses are added and multiplied by numbers: `CrossEntropy(output="logits") + 0.3 * MSE(output="depth",
    target="depth")`, see `WeightedSum`.
    """

    #: What the prediction is taken for. An export warns where the model ends in an operator that makes something else.
    expects: ClassVar[Expectation] = "values"

    reduction: Literal["mean", "sum"] = field(default="mean", kw_only=True)
    target: str = field(default="target", kw_only=True)
    output: str | None = field(default=None, kw_only=True)
    sample_weight: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        require(self.reduction in ("mean", "sum"), f"reduction must be 'mean' or 'sum', got {self.reduction!r}")
        require(bool(self.target), "target must name a batch input")
        require(self.sample_weight != "", "sample_weight must name a batch input, or be None")

    def __add__(self, other: Loss) -> Loss:
        from edgeopt.losses.weighted import WeightedSum

        return WeightedSum(self.parts() + other.parts()) if isinstance(other, Loss) else NotImplemented

    def __mul__(self, factor: float) -> Loss:
        from edgeopt.losses.weighted import WeightedSum

        if isinstance(factor, bool) or not isinstance(factor, (int, float)):
            return NotImplemented
        return WeightedSum(tuple((factor * each, loss) for each, loss in self.parts()))

    __rmul__ = __mul__

    def parts(self) -> tuple[tuple[float, Loss], ...]:
        """Return the losses that this one is a sum of, each with its factor: itself alone, but for a `WeightedSum`."""
        return ((1.0, self),)

    def outputs(self) -> tuple[str | None, ...]:
        """Return the names of the model's outputs that the loss reads, in order; None stands for the default."""
        return (self.output,)

    def settled(self, default: str, outputs: Mapping[str, ArraySpec], inputs: Mapping[str, ArraySpec]) -> Loss:
        """Return the loss with what depends on the model filled in; most losses need nothing.

        Args:
            default: The output that a loss reads which names none.
            outputs: What the model returns in training.
            inputs: What the model takes that predictions do not depend on: labels, of a model with a loss of its own.
        """
        return self

    def assumptions(self) -> tuple[str, ...]:
        """Return what was taken for granted, in sentences, of a loss that is `settled`; an export says it."""
        return ()

    def inputs(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return all batch inputs the loss needs beside the model's: its targets, then the samples' weights."""
        targets = self.targets(prediction, *others)
        if self.sample_weight is None:
            return targets
        return (*targets, ArraySpec(self.sample_weight, prediction.dtype, (self.samples(prediction, *others),)))

    def samples(self, prediction: ArraySpec, *others: ArraySpec) -> int | str:
        """Return the size of the batch: that of the first axis."""
        if not prediction.shape:
            raise SignatureError(
                f"{type(self).__name__} has no samples to weigh: the prediction {prediction.name!r} has no axes."
            )
        return prediction.shape[0]

    def terms(self, xp: Namespace, prediction: Array, *others: Array) -> tuple[Array, Array]:
        """Return the loss sum and its weight, both 0-d in the prediction's dtype.

        The arrays are the outputs that the loss reads, in order, and then its `inputs`.
        """
        if self.sample_weight is None:
            total, weight = self.sum_and_weight(xp, prediction, *others)
        else:
            total, weight = self._weighted(xp, self.each(xp, prediction, *others[:-1]), others[-1])
        return total, weight if self.reduction == "mean" else xp.ones_like(total)

    def _weighted(self, xp: Namespace, each: Each, sample_weight: Array) -> tuple[Array, Array]:
        values, weights = each
        factor = xp.reshape(sample_weight, (-1,) + (1,) * (values.ndim - 1))
        return xp.sum(factor * values), xp.sum(factor * (xp.ones_like(values) if weights is None else weights))

    @abstractmethod
    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return the batch inputs the loss compares with, given the outputs of the model that it reads, in order.

        Raises `SignatureError` if the loss cannot work on such outputs.
        """

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the losses of which this one is the mean. Further outputs that it reads come before the targets.

        Raises `SignatureError` here: a loss that only says its sum cannot weigh samples.
        """
        raise SignatureError(f"{type(self).__name__} has no loss for each sample, so sample_weight cannot weigh them.")

    def sum_and_weight(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Return the loss sum and the weight that makes the mean of it: those of `each`, unless a loss says others."""
        values, weights = self.each(xp, prediction, *targets)
        return xp.sum(values), xp.sum(xp.ones_like(values) if weights is None else weights)


@dataclass(frozen=True)
class ElementwiseLoss(Loss):
    """A loss that compares each element of the prediction with its own element of the target.

    The target has the prediction's shape and dtype, and the weight is the number of elements.
    """

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return one target like the prediction."""
        return (prediction._replace(name=self.target),)

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the losses of the elements."""
        (target,) = targets
        require_same_rank(type(self).__name__, prediction.ndim, target.ndim)
        return Each(self.elementwise(xp, prediction, target))

    @abstractmethod
    def elementwise(self, xp: Namespace, prediction: Array, target: Array) -> Array:
        """Return the loss of every element."""


def require_same_rank(owner: str, prediction: int, target: int) -> None:
    """Refuse a target of another rank: (n, 1) against (n,) would broadcast to (n, n) and train on nonsense."""
    if target != prediction:
        raise SignatureError(
            f"{owner} compares element by element, but the prediction has {prediction} dimensions and the target "
            f"{target}"
        )
