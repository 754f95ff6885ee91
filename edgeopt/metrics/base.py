"""What every metric provides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from edgeopt.arguments import Component
from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.losses import ArraySpec, Loss

__all__ = ["MeanMetric", "Metric"]


@dataclass(frozen=True)
class Metric(metaclass=Component):
    """Sums over a batch, and a formula that makes the metric of them.

    Sums of batches add up, so that the metric of a data set does not depend on its batching. The formula is traced
    as well: it travels with the bundle, as a graph, and every runtime computes the same.

    `output` is the name of the model's output that the metric reads, by default the one that the loss reads; `target`
    that of a batch input of the loss, by default those that the loss compares that output with. A name that no loss has
    becomes a batch input of the metric's own, which only evaluation asks for. `label` is the name under which the
    metric is reported, by default that of its kind.
    """

    #: Name under which the metric is reported, and its key in the registry.
    name: ClassVar[str]

    output: str | None = field(default=None, kw_only=True)
    target: str | None = field(default=None, kw_only=True)
    label: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        require(self.label != "", "label must not be empty")

    @property
    def reported(self) -> str:
        """The name under which it is reported."""
        return self.label or self.name

    def targets(self, prediction: ArraySpec) -> tuple[ArraySpec, ...]:  # optional
        """Return the batch inputs that the metric compares with; none stands for those of the loss.

        Where a loss has an input of such a name, the metric reads that. Others are in the batches of evaluation only,
        so that training does not report the metric.
        """
        return ()

    def check(self, loss: Loss | None, prediction: ArraySpec, targets: Sequence[ArraySpec]) -> None:  # optional
        """Raise `SignatureError` if the metric cannot work on such a prediction with these targets.

        `loss` is the loss that has the targets; None where they are the metric's own.
        """

    @abstractmethod
    def sums(self, xp: Namespace, prediction: Array, *targets: Array) -> Mapping[str, Array]:
        """Return sums over the batch, by names of the metric's own: floating-point arrays of fixed shapes.

        Models of half precision give float16, which ends at 65504 and counts to 2048: `edgeopt.metrics.wide` makes
        float32 of it, which counts to 2^24 exactly and goes on with a relative error of 1e-7.
        """

    @abstractmethod
    def value(self, xp: Namespace, sums: Mapping[str, Array]) -> Array | Mapping[str, Array]:
        """Return the metric of these sums; several numbers or arrays by name, reported as `NAME.name`.

        Evaluation reports all of them, a training step only numbers. What is 0/0, because nothing was counted, is NaN.
        """


@dataclass(frozen=True)
class MeanMetric(Metric):
    """A metric that is a sum divided by a weight."""

    def sums(self, xp: Namespace, prediction: Array, *targets: Array) -> Mapping[str, Array]:
        """Return both."""
        total, weight = self.terms(xp, prediction, *targets)
        return {"sum": total, "weight": weight}

    def value(self, xp: Namespace, sums: Mapping[str, Array]) -> Array:
        """Return their quotient."""
        return sums["sum"] / sums["weight"]

    @abstractmethod
    def terms(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Return the metric's sum and its weight, both 0-d floating-point numbers."""
