"""How likely the labels were held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.errors import SignatureError
from edgeopt.losses.classes import labels_among
from edgeopt.losses.numerics import log_softmax
from edgeopt.metrics.classes import ClassMetric
from edgeopt.metrics.numerics import count, wide

__all__ = ["Perplexity"]


@dataclass(frozen=True)
class Perplexity(ClassMetric):
    """exp of the mean cross-entropy of the labelled positions: among how many equally likely classes the model chooses.

    Logits or log-probabilities have their classes along `class_axis`: give -1 for language models, as in
    `CrossEntropy`. Neither class weights nor smoothing of the loss have a part in it. A label that is neither a class
    nor `ignore_index` gives NaN.

    Raises:
        SignatureError: The loss has no classes for targets, or takes another axis for that of the classes.
    """

    name: ClassVar[str] = "perplexity"

    def check_events(self, loss: str, shape: Sequence[int | str], targets: Sequence[int | str]) -> None:
        """See `ClassMetric`."""
        raise SignatureError(f"Perplexity is about labels of classes, and the targets of {loss} are none.")

    def sums(self, xp: Namespace, prediction: Array, *targets: Array) -> Mapping[str, Array]:
        """Return the negative log-likelihood and the number of positions."""
        scores = wide(xp, prediction)
        axis = self._axis(prediction.shape)
        labels = labels_among(xp, scores, targets[0], axis, prediction.shape[axis], self.ignore_index)
        losses = -labels.score_of_label(xp, log_softmax(xp, scores, axis))
        return {
            "negative_log_likelihood": xp.sum(labels.counting(xp, losses)),
            "positions": count(xp, labels.counted, prediction),
        }

    def value(self, xp: Namespace, sums: Mapping[str, Array]) -> Array:
        """Return the exponential of the mean."""
        return xp.exp(sums["negative_log_likelihood"] / sums["positions"])
