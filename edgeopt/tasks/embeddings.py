"""Embeddings: what belongs together lies close."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from edgeopt.checks import positive as require_positive
from edgeopt.checks import require
from edgeopt.losses import InfoNCE, Loss, Triplet
from edgeopt.tasks.base import Recipe, Task

__all__ = ["MetricLearning"]


@dataclass(frozen=True)
class MetricLearning(Task):
    """Pairs of embeddings, the outputs `anchor` and `positive`, each against the others of the batch.

    InfoNCE with a temperature of 0.07 in both directions, as CLIP (Radford et al., arXiv:2103.00020). With `negative`,
    a third output, triplets with a margin (Schroff et al., arXiv:1503.03832) instead. There are no targets, and no
    metrics: how many pairs are found depends on how many there are to choose from, that is on the batch.

    Rate 5e-5, the default of transformers and sentence-transformers, decay 0.01. Larger batches learn more.
    """

    name: ClassVar[str] = "metric_learning"

    anchor: str = "anchor"
    positive: str = "positive"
    negative: str | None = None
    temperature: float = field(default=0.07, kw_only=True)
    margin: float = field(default=0.2, kw_only=True)
    lr: float = field(default=5e-5, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("temperature", self.temperature)
        require_positive("margin", self.margin)
        require(self.output is None, "output is called anchor here")

    def recipe(self) -> Recipe:
        """See `Task`."""
        return self.made_of(self._loss())

    def _loss(self) -> Loss:
        if self.negative is not None:
            return Triplet(self.margin, output=self.anchor, positive=self.positive, negative=self.negative)
        return InfoNCE(self.temperature, output=self.anchor, other=self.positive)
