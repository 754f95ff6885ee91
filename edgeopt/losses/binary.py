"""Losses of logits of yes and no."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import number_or_tuple, require
from edgeopt.errors import SignatureError
from edgeopt.losses.base import ArraySpec, ElementwiseLoss, Expectation
from edgeopt.losses.classification import check_focus
from edgeopt.losses.numerics import sigmoid

__all__ = ["BCEWithLogits", "BinaryFocal", "Hinge"]


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

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return one target like the prediction."""
        if isinstance(self.pos_weight, tuple) and prediction.shape[-1:] != (len(self.pos_weight),):
            raise SignatureError(
                f"BCEWithLogits has {len(self.pos_weight)} positive weights, one for each entry of the last axis, but "
                f"the logits have shape {prediction.shape}"
            )
        return super().targets(prediction, *others)

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


@dataclass(frozen=True)
class BinaryFocal(ElementwiseLoss):
    """Binary cross-entropy of logits that counts less where the target is likely already: alpha_t·(1 - p_t)^gamma·BCE.

    p_t is the probability that the logit gives to the target; alpha_t is alpha for positives and 1 - alpha for
    negatives, and left out if alpha is negative. Same as `torchvision.ops.sigmoid_focal_loss` (Lin et al., ICCV 2017,
    arXiv:1708.02002).

    Raises:
        ConfigurationError: alpha above 1, or a gamma between 0 and 1 or below 0, see `Focal`.
    """

    expects: ClassVar[Expectation] = "logits"

    alpha: float = 0.25
    gamma: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.alpha <= 1, f"alpha must be at most 1, got {self.alpha!r}")
        check_focus(self.gamma)

    def elementwise(self, xp: Namespace, prediction: Array, target: Array) -> Array:
        """Return the losses."""
        loss = BCEWithLogits().elementwise(xp, prediction, target)
        if self.gamma:
            # 1 - p_t, from the two probabilities and not as a difference from 1: it has all its digits near 0.
            positive, negative = sigmoid(xp, prediction), sigmoid(xp, -prediction)
            missed = negative * target + positive * (1.0 - target)
            loss = loss * missed**self.gamma
        return loss if self.alpha < 0 else loss * (self.alpha * target + (1.0 - self.alpha) * (1.0 - target))


@dataclass(frozen=True)
class Hinge(ElementwiseLoss):
    """max(0, 1 - y·x), squared with `squared`: the loss of support vector machines (Cortes and Vapnik 1995).

    A target above 0 stands for y = 1, any other for y = -1, so both 0/1 and -1/1 are understood. As Keras's `Hinge` and
    `SquaredHinge`; the slope at the kink is 0.
    """

    squared: bool = False

    def elementwise(self, xp: Namespace, prediction: Array, target: Array) -> Array:
        """Return the losses."""
        excess = 1.0 - xp.where(target > 0.0, prediction, -prediction)
        excess = xp.where(excess > 0.0, excess, 0.0)
        return excess * excess if self.squared else excess
