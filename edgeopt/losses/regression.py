"""Losses between real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import number_or_tuple, positive, require
from edgeopt.errors import SignatureError
from edgeopt.losses.base import ArraySpec, Each, ElementwiseLoss, Loss, require_same_rank

__all__ = ["L1", "MSE", "Huber", "LogCosh", "Quantile", "SmoothL1"]


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


@dataclass(frozen=True)
class SmoothL1(ElementwiseLoss):
    """The square over 2β up to β, d - β/2 beyond, with d = |prediction - target|: Huber(β)/β.

    Same as `torch.nn.functional.smooth_l1_loss` (Girshick, ICCV 2015, arXiv:1504.08083, with β = 1).
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("beta", self.beta)

    def elementwise(self, xp: Namespace, prediction: Array, target: Array) -> Array:
        """Return the losses."""
        distance = xp.abs(prediction - target)
        capped = xp.minimum(distance, self.beta)
        return capped * (distance - 0.5 * capped) / self.beta


@dataclass(frozen=True)
class LogCosh(ElementwiseLoss):
    """log cosh(prediction - target): a square near 0, linear far away, with the slope tanh. As Keras's `LogCosh`."""

    def elementwise(self, xp: Namespace, prediction: Array, target: Array) -> Array:
        """Return |d| + log(1 + exp(-2|d|)) - log 2, which no d makes overflow."""
        distance = xp.abs(prediction - target)
        return distance + xp.log(0.5 + 0.5 * xp.exp(-2.0 * distance))


@dataclass(frozen=True)
class Quantile(Loss):
    """Pinball loss: with d = target - prediction, q·d where the prediction is too small, (q - 1)·d where too large.

    Its minimum is the q-quantile of the target (Koenker and Bassett 1978). `q` is one number, for targets in the shape
    of the prediction, or several, one for each entry of the prediction's last axis, which the target then lacks. As
    `sklearn.metrics.mean_pinball_loss`; the slope where both are equal is the mean of both sides'.

    Raises:
        ConfigurationError: q not between 0 and 1.
        SignatureError: A last axis of another length than q.
    """

    q: float | Sequence[float] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "q", number_or_tuple("q", self.q))
        inside = all(0 < each < 1 for each in (self.q if isinstance(self.q, tuple) else (self.q,)))
        require(inside, f"q must be between 0 and 1, got {self.q!r}")

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return one target like the prediction, without the axis of quantiles."""
        if not isinstance(self.q, tuple):
            return (prediction._replace(name=self.target),)
        if prediction.shape[-1:] != (len(self.q),):
            raise SignatureError(
                f"Quantile has {len(self.q)} quantiles, one for each entry of the last axis, but the prediction has "
                f"shape {prediction.shape}"
            )
        return (prediction._replace(name=self.target, shape=prediction.shape[:-1]),)

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the elements' losses."""
        (target,) = targets
        tilt: Array
        if isinstance(self.q, tuple):
            target = xp.expand_dims(target, axis=-1)
            tilt = xp.asarray([q - 0.5 for q in self.q], dtype=prediction.dtype)
        else:
            tilt = float(self.q) - 0.5  # type: ignore[arg-type]  # a number after `__post_init__`
        require_same_rank("Quantile", prediction.ndim, target.ndim)
        difference = target - prediction
        # max(q·d, (q - 1)·d), the sides' mean at 0 whatever an autodiff makes of ties of max.
        return Each(0.5 * xp.abs(difference) + tilt * difference)
