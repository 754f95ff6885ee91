"""Losses between two real tensors of the same shape."""

from __future__ import annotations

from dataclasses import dataclass

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import positive
from edgeopt.losses.base import ElementwiseLoss

__all__ = ["L1", "MSE", "Huber"]


@dataclass(frozen=True)
class MSE(ElementwiseLoss):
    """Squared difference. Same as `torch.nn.functional.mse_loss`."""

    def elementwise(self, xp: Namespace, prediction: Array, target: Array) -> Array:
        """Return the squares."""
        difference = prediction - target
        return difference * difference


@dataclass(frozen=True)
class L1(ElementwiseLoss):
    """Absolute difference, with gradient 0 where both are equal. Same as `torch.nn.functional.l1_loss`."""

    def elementwise(self, xp: Namespace, prediction: Array, target: Array) -> Array:
        """Return the magnitudes."""
        return xp.abs(prediction - target)


@dataclass(frozen=True)
class Huber(ElementwiseLoss):
    """Half the square up to `delta`, linear beyond (Huber 1964). Same as `torch.nn.functional.huber_loss`.

    With d = |prediction - target|: d²/2 for d < delta, otherwise delta·(d - delta/2).
    """

    delta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("delta", self.delta)

    def elementwise(self, xp: Namespace, prediction: Array, target: Array) -> Array:
        """Return the losses, in a form without a branch whose unused half could overflow."""
        distance = xp.abs(prediction - target)
        capped = xp.minimum(distance, self.delta)
        return capped * (distance - 0.5 * capped)
