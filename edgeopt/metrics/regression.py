"""How far predicted numbers are from the right ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.errors import SignatureError
from edgeopt.losses import ArraySpec, Loss
from edgeopt.metrics.base import MeanMetric, Metric
from edgeopt.metrics.numerics import count, wide

__all__ = ["MAE", "MSE", "R2", "RMSE", "CosineSimilarity", "NumberMetric"]


@dataclass(frozen=True)
class NumberMetric(Metric):
    """A metric that compares numbers with numbers of the same shape."""

    def targets(self, prediction: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return numbers like the prediction under the name that was given; see `Metric`."""
        return () if self.target is None else (prediction._replace(name=self.target),)

    def check(self, loss: Loss | None, prediction: ArraySpec, targets: Sequence[ArraySpec]) -> None:
        """See `Metric`."""
        owner, kind = type(self).__name__, "the batch" if loss is None else type(loss).__name__
        if len(targets) != 1 or targets[0].shape != prediction.shape or targets[0].dtype != prediction.dtype:
            given = ", ".join(f"{spec.dtype} of shape {spec.shape}" for spec in targets)
            raise SignatureError(
                f"{owner} compares numbers of shape {prediction.shape} with numbers, but the targets of {kind} are "
                f"{given or 'none'}."
            )


@dataclass(frozen=True)
class MSE(NumberMetric, MeanMetric):
    """Mean of (x - y)² over all elements."""

    name: ClassVar[str] = "mse"

    def terms(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Return the squares' sum and the number of elements."""
        difference = wide(xp, prediction) - wide(xp, targets[0])
        return xp.sum(difference * difference), count(xp, xp.ones_like(prediction), prediction)


@dataclass(frozen=True)
class RMSE(NumberMetric):
    """Root of the mean of (x - y)² over all elements of all batches, which no mean over batches is."""

    name: ClassVar[str] = "rmse"

    def sums(self, xp: Namespace, prediction: Array, *targets: Array) -> Mapping[str, Array]:
        """Return the squares' sum and the number of elements."""
        difference = wide(xp, prediction) - wide(xp, targets[0])
        elements = count(xp, xp.ones_like(prediction), prediction)
        return {"squares": xp.sum(difference * difference), "elements": elements}

    def value(self, xp: Namespace, sums: Mapping[str, Array]) -> Array:
        """Return the root of the mean."""
        return xp.sqrt(sums["squares"] / sums["elements"])


@dataclass(frozen=True)
class MAE(NumberMetric, MeanMetric):
    """Mean of abs(x - y) over all elements."""

    name: ClassVar[str] = "mae"

    def terms(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Return the distances' sum and the number of elements."""
        distance = xp.abs(wide(xp, prediction) - wide(xp, targets[0]))
        return xp.sum(distance), count(xp, xp.ones_like(prediction), prediction)


@dataclass(frozen=True)
class CosineSimilarity(NumberMetric, MeanMetric):
    """Mean of x·y / (max(‖x‖, eps)·max(‖y‖, eps)) over all vectors along `axis`, as `torch.nn.CosineSimilarity`."""

    name: ClassVar[str] = "cosine_similarity"

    axis: int = -1
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.eps > 0.0, f"eps must be positive, got {self.eps!r}")

    def check(self, loss: Loss | None, prediction: ArraySpec, targets: Sequence[ArraySpec]) -> None:
        """See `Metric`."""
        super().check(loss, prediction, targets)
        if not -len(prediction.shape) <= self.axis < len(prediction.shape):
            raise SignatureError(
                f"CosineSimilarity has axis={self.axis}, but the prediction has shape {prediction.shape}."
            )

    def terms(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Return the cosines' sum and their number."""
        one, two = wide(xp, prediction), wide(xp, targets[0])
        along = self.axis % prediction.ndim
        norms = [xp.clip(xp.sqrt(xp.sum(each * each, axis=along)), self.eps) for each in (one, two)]
        cosines = xp.sum(one * two, axis=along) / norms[0] / norms[1]
        return xp.sum(cosines), xp.sum(xp.ones_like(cosines))


@dataclass(frozen=True)
class R2(NumberMetric):
    """1 - Σ(x - y)² / Σ(y - ȳ)², the coefficient of determination: the share of the variance that is predicted.

    ȳ is the mean over all batches. Each element of a sample is an output of its own, the samples lying along the first
    axis: `average="uniform"` is the mean of their coefficients, as scikit-learn's, `"none"` an array of them, in the
    order in which they lie. Where the other axes have no fixed length, all elements are one output.

    All is added up in float64, since Σy² - (Σy)²/n loses as many digits as the square of mean over deviation has: of
    targets around 1000 times their deviation 10 digits are left. A constant target, whose variance is 0, gives -inf, or
    NaN where it is met exactly; scikit-learn says 0 and 1 there.

    Raises:
        ConfigurationError: There is no such average.
        SignatureError: The targets have another shape than the prediction.
    """

    name: ClassVar[str] = "r2"

    average: Literal["uniform", "none"] = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.average in ("uniform", "none"), f"average must be 'uniform' or 'none', got {self.average!r}")

    def sums(self, xp: Namespace, prediction: Array, *targets: Array) -> Mapping[str, Array]:
        """Return Σ(x - y)², Σy and Σy² of each output, and how many there are."""
        outputs = prediction.shape[1:]
        apart = all(isinstance(length, int) for length in outputs)
        axis: int | None = 0 if apart and outputs else None
        y = xp.astype(targets[0], xp.float64)
        difference = xp.astype(prediction, xp.float64) - y
        found = {"squares": difference * difference, "target": y, "target_squares": y * y, "samples": xp.ones_like(y)}
        return {name: xp.reshape(xp.sum(each, axis=axis), (-1,)) for name, each in found.items()}

    def value(self, xp: Namespace, sums: Mapping[str, Array]) -> Array:
        """Return 1 - Σ(x - y)² / (Σy² - (Σy)²/n)."""
        around_mean = sums["target_squares"] - sums["target"] * (sums["target"] / sums["samples"])
        found = 1.0 - sums["squares"] / around_mean
        return found if self.average == "none" else xp.mean(found)
