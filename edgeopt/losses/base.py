"""What every loss provides, and how it is reduced."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, TypeAlias

from edgeopt.arguments import Component
from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.errors import SignatureError

__all__ = ["ArraySpec", "ElementwiseLoss", "Expectation", "Loss", "require_same_rank"]

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


@dataclass(frozen=True)
class Loss(metaclass=Component):
    """A sum and a weight, whose quotient is the loss.

    Kept apart, sums and weights of microbatches add up to those of the whole batch exactly, however the classes,
    ignored positions and lengths are spread over them.

    `reduction="mean"` divides by the weight the loss defines: the number of elements, or the sum of class weights. With
    `reduction="sum"` the weight of a batch is 1, so accumulating k microbatches gives the mean of their k sums.

    `target` is the name of the batch input that holds the targets.
    """

    #: What the prediction is taken for. An export warns where the model ends in an operator that makes something else.
    expects: ClassVar[Expectation] = "values"

    reduction: Literal["mean", "sum"] = field(default="mean", kw_only=True)
    target: str = field(default="target", kw_only=True)

    def __post_init__(self) -> None:
        require(self.reduction in ("mean", "sum"), f"reduction must be 'mean' or 'sum', got {self.reduction!r}")
        require(bool(self.target), "target must name a batch input")

    def terms(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Return the loss sum and its weight, both 0-d in the prediction's dtype."""
        total, weight = self.sum_and_weight(xp, prediction, *targets)
        return total, weight if self.reduction == "mean" else xp.ones_like(total)

    @abstractmethod
    def targets(self, prediction: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return the batch inputs the loss needs beside the model's, given the model's output.

        Raises `SignatureError` if the loss cannot work on such an output.
        """

    @abstractmethod
    def sum_and_weight(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Return the loss sum and the weight that makes the mean of it."""


@dataclass(frozen=True)
class ElementwiseLoss(Loss):
    """A loss that compares each element of the prediction with its own element of the target.

    The target has the prediction's shape and dtype, and the weight is the number of elements.
    """

    def targets(self, prediction: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return one target like the prediction."""
        return (prediction._replace(name=self.target),)

    def sum_and_weight(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Sum the elements' losses and count them."""
        (target,) = targets
        require_same_rank(type(self).__name__, prediction.ndim, target.ndim)
        losses = self.elementwise(xp, prediction, target)
        return xp.sum(losses), xp.sum(xp.ones_like(losses))

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
