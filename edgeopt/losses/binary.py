"""Binary cross-entropy of logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import number_or_tuple
from edgeopt.errors import SignatureError
from edgeopt.losses.base import ArraySpec, ElementwiseLoss, Expectation

__all__ = ["BCEWithLogits"]


@dataclass(frozen=True)
class BCEWithLogits(ElementwiseLoss):
    """Binary cross-entropy of logits x against probabilities z in [0, 1], element by element.

    ::

        max(x, 0) - x·z + log(1 + exp(-|x|))

    which is finite for every finite logit. `pos_weight` multiplies the loss of the positives: one number, or one for
    each entry of the last axis; the loss is then (1 - z)·x + (1 + (p - 1)·z)·(log(1 + exp(-|x|)) + max(-x, 0)).

    Same as `torch.nn.functional.binary_cross_entropy_with_logits`.

    Raises:
        ConfigurationError: A negative `pos_weight`.
        SignatureError: A last axis of another length than `pos_weight`.
    """

    expects: ClassVar[Expectation] = "logits"

    pos_weight: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pos_weight is not None:
            object.__setattr__(self, "pos_weight", number_or_tuple("pos_weight", self.pos_weight))

    def targets(self, prediction: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return one target like the prediction."""
        if isinstance(self.pos_weight, tuple) and prediction.shape[-1:] != (len(self.pos_weight),):
            raise SignatureError(
                f"BCEWithLogits has {len(self.pos_weight)} positive weights, one for each entry of the last axis, but "
                f"the logits have shape {prediction.shape}"
            )
        return super().targets(prediction)

    def elementwise(self, xp: Namespace, prediction: Array, target: Array) -> Array:
        """Return the losses."""
        magnitude = xp.abs(prediction)
        # Not log1p, which ONNX lacks: the sum is at most 2, so the loss is off by one rounding of 1 at most, and its
        # derivative not at all.
        log_term = xp.log(1.0 + xp.exp(-magnitude))
        # max(±x, 0) is written (|x| ± x)/2: at x = 0 its gradient is then ±1/2 in every autodiff, and the loss has the
        # right slope 1/2 - z, whatever the rule for ties of max.
        if self.pos_weight is None:
            return prediction * (0.5 - target) + 0.5 * magnitude + log_term
        excess = xp.asarray(self.pos_weight, dtype=prediction.dtype) - 1.0
        negative_part = 0.5 * (magnitude - prediction)
        return (1.0 - target) * prediction + (1.0 + excess * target) * (log_term + negative_part)
