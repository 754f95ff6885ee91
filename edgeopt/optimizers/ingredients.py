"""What an update may need beside the gradient: random numbers, and what is measured in the batch.

A rule declares them in `Optimizer.ingredients`; whoever runs the rule provides them. In a bundle the training package
does: random numbers come from the bundle's own seeded generator, measurements from the graphs that see the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgeopt.checks import at_least

__all__ = [
    "Curvature",
    "GaussNewtonBartlett",
    "GaussNewtonSketch",
    "HutchinsonDiagonal",
    "Ingredient",
    "KroneckerFactor",
    "LossValue",
    "Measurement",
    "Noise",
    "Normal",
    "Rademacher",
    "Tangents",
    "Uniform",
]


@dataclass(frozen=True)
class Ingredient:
    """An array in the dtype of the parameter, new at each update."""

    def array_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the array, from that of the parameter."""
        return shape


@dataclass(frozen=True)
class Noise(Ingredient):
    """Independent random numbers.

    Attributes:
        shape: Of the array; None for that of the parameter.
    """

    shape: tuple[int, ...] | None = None

    def array_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Its own shape, or that of the parameter."""
        return shape if self.shape is None else self.shape


@dataclass(frozen=True)
class Normal(Noise):
    """Numbers of mean 0 and variance 1."""


@dataclass(frozen=True)
class Uniform(Noise):
    """Numbers in [0, 1)."""


@dataclass(frozen=True)
class Rademacher(Noise):
    """-1 or 1, equally often."""


@dataclass(frozen=True)
class Tangents(Normal):
    """Normal numbers that all microbatches of an update share: directions in which it looks at the loss."""


@dataclass(frozen=True)
class Measurement(Ingredient):
    """Something measured in the batch by the graphs that see it.

    It is measured at the updates 1, 1 + every, 1 + 2·every and so on; at the others the array is zero, and whoever
    declared it uses what it kept.

    Raises:
        ConfigurationError: `every` is below 1.
    """

    every: int = 1

    def __post_init__(self) -> None:
        at_least("every", self.every, 1)

    def shape_of_sums(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what adds up over microbatches, from that of the parameter."""
        return self.array_shape(shape)


@dataclass(frozen=True)
class LossValue(Measurement):
    """The mean loss of the batch, a 0-d array: what the gradient is that of. An ingredient of a whole group."""

    def array_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """None."""
        return ()


@dataclass(frozen=True)
class Curvature(Measurement):
    """An estimate of curvature, in the shape of the parameter unless a kind says otherwise."""


@dataclass(frozen=True)
class HutchinsonDiagonal(Curvature):
    """z ⊙ Hz, with the Hessian H of the mean loss over all the parameters that need it, and z of random signs.

    Its mean is the diagonal of H (Hutchinson 1990; Yao et al., AAAI 2021, arXiv:2006.00719). Of microbatches it is the
    weighted mean of their estimates, each with signs of its own.
    """


@dataclass(frozen=True)
class GaussNewtonBartlett(Curvature):
    """B·ĝ², with the gradient ĝ of the mean cross-entropy against labels drawn from the model's own softmax.

    B is the number of labels. Its mean is the diagonal of the Gauss-Newton matrix (Liu et al., ICLR 2024,
    arXiv:2305.14342, algorithm 2). Microbatches give what they would give as one batch. Needs a `CrossEntropy` loss,
    of which only `ignore_index` and `class_axis` matter here.
    """


@dataclass(frozen=True)
class KroneckerFactor(Curvature):
    """A mean over the rows of a batch, from the layer whose weight the parameter is: half of its curvature.

    A weight, as a matrix of its first axis against all others, meets what enters its layer along one side and what
    leaves it along the other: x along the columns and y = W·x along the rows in a linear layer of PyTorch and in a
    convolution, the other way round where the layer computes x·W. On the side of x the mean is that of x, which in a
    convolution is the patch under the kernel; on the side of y, of the gradient that the loss of one sample has by y.
    The curvature of the layer is about the Kronecker product of both sides (Martens and Grosse, ICML 2015,
    arXiv:1503.05671). A layer that is used more than once, and the groups of a convolution, count as more rows.

    Attributes:
        size: The number of rows, or of columns.
        side: Which of them.
        squared: Whether the mean is that of squares.
    """

    size: int = 1
    side: Literal["rows", "columns"] = "rows"
    squared: bool = False

    def array_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number for each row, or column."""
        return (self.size,)

    def shape_of_sums(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The sum, and behind it the number of samples."""
        return (self.size + 1,)


@dataclass(frozen=True)
class GaussNewtonSketch(Curvature):
    """Slopes and curvature of the mean loss along directions: an ingredient of a whole group.

    With the derivatives tᵢ of the model's output along the `Tangents` vᵢ of all parameters of the group together, and
    the Hessian H of the loss by that output, element (i, j) is tᵢᵀ·H·tⱼ, and column `count` holds the slopes ∂loss/∂vᵢ
    (Yu et al., NeurIPS 2024). The derivatives are those of forward mode: nothing is propagated backwards.

    Attributes:
        count: How many directions there are.
        tangents: The name of the parameters' ingredient that holds them.
    """

    count: int = 1
    tangents: str = "tangents"

    def array_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One row for each direction."""
        return (self.count, self.count + 1)
