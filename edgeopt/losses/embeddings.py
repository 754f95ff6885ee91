"""Losses of embeddings: what belongs together lies close, and the rest apart. Each reads two outputs or three."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, positive, require
from edgeopt.errors import SignatureError
from edgeopt.losses.base import ArraySpec, Each, Loss
from edgeopt.losses.numerics import logsumexp

__all__ = ["CosineEmbedding", "InfoNCE", "MarginRanking", "Triplet"]


@dataclass(frozen=True)
class _Compared(Loss):
    """A loss of outputs of one shape, the first of which is `output`."""

    #: How many axes the outputs have; None for any number.
    axes: ClassVar[int | None] = 2

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return no target: the outputs are compared with each other."""
        self._check(prediction, *others)
        return ()

    def _check(self, prediction: ArraySpec, *others: ArraySpec) -> None:
        name = type(self).__name__
        if self.axes is not None and len(prediction.shape) != self.axes:
            raise SignatureError(
                f"{name} compares embeddings, an axis of samples and one of features, but the output "
                f"{prediction.name!r} has shape {prediction.shape}"
            )
        for other in others:
            if other.shape[-1:] != prediction.shape[-1:] or len(other.shape) != len(prediction.shape):
                raise SignatureError(
                    f"{name} compares outputs of one shape, but {prediction.name!r} has {prediction.shape} and "
                    f"{other.name!r} has {other.shape}"
                )


@dataclass(frozen=True)
class CosineEmbedding(_Compared):
    """1 - cos(a, b) where the target is 1, max(0, cos(a, b) - margin) where it is -1.

    a is `output` and b is `other`, both of shape (samples, features); the target is a number for each sample. Same as
    `torch.nn.functional.cosine_embedding_loss`, with its 1e-12 beside the squared lengths.
    """

    margin: float = 0.0
    other: str = field(default="other", kw_only=True)

    def outputs(self) -> tuple[str | None, ...]:
        """Return both embeddings' names."""
        return (self.output, self.other)

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return the signs, one for each sample."""
        self._check(prediction, *others)
        return (ArraySpec(self.target, prediction.dtype, prediction.shape[:1]),)

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the samples' losses."""
        other, sign = targets
        product = xp.sum(prediction * other, axis=1)
        lengths = (xp.sum(prediction * prediction, axis=1) + 1e-12) * (xp.sum(other * other, axis=1) + 1e-12)
        cosine = product / xp.sqrt(lengths)
        excess = xp.where(cosine > self.margin, cosine - self.margin, 0.0)
        return Each(xp.where(sign > 0.0, 1.0 - cosine, excess))


@dataclass(frozen=True)
class MarginRanking(_Compared):
    """max(0, margin - y·(a - b)): a is to be larger than b by `margin` where y is 1, and smaller where it is -1.

    a is `output` and b is `other`, of any one shape, which the target y has too. Same as
    `torch.nn.functional.margin_ranking_loss`; the slope at the kink is 0.
    """

    axes: ClassVar[int | None] = None

    margin: float = 0.0
    other: str = field(default="other", kw_only=True)

    def outputs(self) -> tuple[str | None, ...]:
        """Return both scores' names."""
        return (self.output, self.other)

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return the signs, in the shape of the scores."""
        self._check(prediction, *others)
        return (prediction._replace(name=self.target),)

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the losses of the pairs."""
        other, sign = targets
        lacking = self.margin - sign * (prediction - other)
        return Each(xp.where(lacking > 0.0, lacking, 0.0))


@dataclass(frozen=True)
class Triplet(_Compared):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), with the distances of the p-norm.

    The anchor is `output`; all three have shape (samples, features). With `swap` the distance from positive to negative
    counts where it is smaller (Balntas et al., BMVC 2016). Same as `torch.nn.functional.triplet_margin_loss`, whose
    `eps` is added to each difference; the slope at the kink is 0.

    Raises:
        ConfigurationError: p below 1.
    """

    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
    positive: str = field(default="positive", kw_only=True)
    negative: str = field(default="negative", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("p", self.p, 1.0)
        at_least("eps", self.eps, 0.0)

    def outputs(self) -> tuple[str | None, ...]:
        """Return the names of anchor, positive and negative."""
        return (self.output, self.positive, self.negative)

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the triplets' losses."""
        positive, negative = targets
        apart = self._distance(xp, prediction, negative)
        if self.swap:
            other = self._distance(xp, positive, negative)
            apart = xp.where(other < apart, other, apart)
        lacking = self._distance(xp, prediction, positive) - apart + self.margin
        return Each(xp.where(lacking > 0.0, lacking, 0.0))

    def _distance(self, xp: Namespace, one: Array, other: Array) -> Array:
        difference = one - other + self.eps
        if self.p == 2.0:
            return xp.sqrt(xp.sum(difference * difference, axis=1))
        magnitude = xp.abs(difference)
        return xp.sum(magnitude if self.p == 1.0 else magnitude**self.p, axis=1) ** (1.0 / self.p)


@dataclass(frozen=True)
class InfoNCE(_Compared):
    """Cross-entropy of cosines over a temperature: which row of `other` belongs to a row of `output`, and back.

    Row i of both outputs, (samples, features), is a pair, and all other rows of the batch are what it is told apart
    from. With a_i and b_j of length 1 and s_ij = a_i·b_j/temperature::

        ½·(log Σ_j exp(s_ij) - s_ii) + ½·(log Σ_j exp(s_ji) - s_ii)

    as CLIP has it (Radford et al., ICML 2021, figure 3; van den Oord et al. 2018, arXiv:1807.03748, for one side, which
    `symmetric=False` gives). `scale` names an output that holds 1/temperature as a number, where the model learns it.

    Accumulation adds up what microbatches give, and a microbatch knows its own rows alone: a batch in pieces is told
    apart from fewer others, as in PyTorch.

    Raises:
        ConfigurationError: A temperature that is not positive.
    """

    temperature: float = 0.07
    symmetric: bool = True
    eps: float = 1e-12
    other: str = field(default="other", kw_only=True)
    scale: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("temperature", self.temperature)
        at_least("eps", self.eps, 0.0)
        require(self.scale != "", "scale must name an output, or be None")

    def outputs(self) -> tuple[str | None, ...]:
        """Return the names of both embeddings, and of the scale."""
        return (self.output, self.other) if self.scale is None else (self.output, self.other, self.scale)

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return no target: the rows' order says what belongs together."""
        self._check(prediction, others[0])
        if self.scale is not None and any(dim != 1 for dim in others[1].shape):
            raise SignatureError(f"The scale {self.scale!r} of InfoNCE is no number: it has shape {others[1].shape}")
        return ()

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the pairs' losses."""
        one, other = self._direction(xp, prediction), self._direction(xp, targets[0])
        scale = 1.0 / self.temperature if self.scale is None else xp.reshape(targets[1], (1, 1))
        # Scaled before the product: fewer numbers than after it, and ONNX Runtime 1.17 would make one operator of the
        # transposition and the product, which it does not have in float64.
        scores = xp.matmul(one, xp.permute_dims(other, (1, 0)) * scale)
        own = xp.sum(one * other, axis=1, keepdims=True) * scale
        losses = logsumexp(xp, scores, 1) - own
        if self.symmetric:
            back = xp.permute_dims(logsumexp(xp, scores, 0), (1, 0)) - own
            losses = 0.5 * losses + 0.5 * back
        return Each(xp.squeeze(losses, axis=1))

    def _direction(self, xp: Namespace, rows: Array) -> Array:
        """Rows of length 1, as `torch.nn.functional.normalize` makes them but for the place of eps."""
        return rows / xp.sqrt(xp.sum(rows * rows, axis=1, keepdims=True) + self.eps)
