"""Likelihoods of numbers, and the distance of distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import positive, require
from edgeopt.errors import SignatureError
from edgeopt.losses.base import ArraySpec, Each, ElementwiseLoss, Expectation, Loss, require_same_rank

__all__ = ["GaussianNLL", "KLDivergence", "PoissonNLL"]


@dataclass(frozen=True)
class GaussianNLL(Loss):
    """Negative log-likelihood of targets t under normal distributions of mean x and variance v: ½·(log v + (t - x)²/v).

    The model has both as outputs, x as `output` and v as `variance`, in the shape of x or with a last axis of 1. v is
    taken as `eps` where it is smaller, and its slope stays; with `log_variance` the second output is log v, which needs
    no bound. `full` adds ½·log 2π. Same as `torch.nn.functional.gaussian_nll_loss` (Nix and Weigend, ICNN 1994).

    Raises:
        ConfigurationError: An eps that is not positive.
        SignatureError: A variance of another shape.
    """

    full: bool = False
    eps: float = 1e-6
    log_variance: bool = False
    variance: str = field(default="variance", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("eps", self.eps)

    def outputs(self) -> tuple[str | None, ...]:
        """Return the names of mean and variance."""
        return (self.output, self.variance)

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return one target like the mean."""
        (variance,) = others
        if variance.shape not in (prediction.shape, (*prediction.shape[:-1], 1)):
            raise SignatureError(
                f"GaussianNLL needs a variance for each mean, or one along the last axis, but {prediction.name!r} has "
                f"shape {prediction.shape} and {variance.name!r} has {variance.shape}"
            )
        return (prediction._replace(name=self.target),)

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the elements' losses."""
        variance, target = targets
        require_same_rank("GaussianNLL", prediction.ndim, target.ndim)
        square = (target - prediction) * (target - prediction)
        if self.log_variance:
            losses = 0.5 * (variance + square * xp.exp(-variance))
        else:
            # The bound changes the value and not the slope, so that a variance below it can grow again.
            lacking = xp.where(variance < self.eps, self.eps - variance, 0.0)
            bounded = variance + (xp.stop_gradient(lacking) if hasattr(xp, "stop_gradient") else lacking)
            losses = 0.5 * (xp.log(bounded) + square / bounded)
        return Each(losses + 0.5 * math.log(2.0 * math.pi) if self.full else losses)


@dataclass(frozen=True)
class PoissonNLL(ElementwiseLoss):
    """Negative log-likelihood of counts t under Poisson distributions of rate λ.

    The prediction x is log λ, and the loss exp(x) - t·x; with `log_input=False` it is λ, and the loss x - t·log(x +
    eps). `full` adds Stirling's approximation of log t!, t·log t - t + ½·log(2πt) for t > 1, which no gradient sees.
    Same as `torch.nn.functional.poisson_nll_loss`.
    """

    log_input: bool = True
    full: bool = False
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("eps", self.eps)

    def elementwise(self, xp: Namespace, prediction: Array, target: Array) -> Array:
        """Return the losses."""
        if self.log_input:
            loss = xp.exp(prediction) - target * prediction
        else:
            loss = prediction - target * xp.log(prediction + self.eps)
        if not self.full:
            return loss
        # Where the approximation is not taken, a logarithm of 1 stands in for that of 0.
        count = xp.where(target > 1.0, target, 1.0)
        stirling = count * xp.log(count) - count + 0.5 * xp.log(2.0 * math.pi * count)
        return loss + xp.where(target > 1.0, stirling, 0.0)


@dataclass(frozen=True)
class KLDivergence(ElementwiseLoss):
    """Kullback-Leibler divergence of the predicted distribution from the target's: Σ t·(log t - x).

    The prediction x is log-probabilities. Targets t are probabilities, or with `log_target` their logarithms.
    The mean divides by the length of the first axis, which gives the divergence of the definition and is `batchmean` in
    `torch.nn.functional.kl_div`; with `mean_over="elements"` by the number of elements, torch's `mean`.

    Raises:
        ConfigurationError: `mean_over` is neither.
    """

    expects: ClassVar[Expectation] = "log-probabilities"

    log_target: bool = False
    mean_over: Literal["elements", "samples"] = "samples"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.mean_over in ("elements", "samples"),
            f"mean_over must be 'elements' or 'samples', got {self.mean_over!r}",
        )

    def elementwise(self, xp: Namespace, prediction: Array, target: Array) -> Array:
        """Return the terms, 0 where the target is."""
        if self.log_target:
            return xp.exp(target) * (target - prediction)
        entropy = target * xp.log(xp.where(target > 0.0, target, 1.0))
        # Not target·(log target - x): a prediction of -inf where the target is 0 must not give NaN.
        return entropy - target * xp.where(target > 0.0, prediction, 0.0)

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the terms, or their sum for each sample."""
        each = super().each(xp, prediction, *targets)
        if self.mean_over == "samples" and prediction.ndim > 1:
            return Each(xp.sum(each.values, axis=tuple(range(1, prediction.ndim))))
        return each
