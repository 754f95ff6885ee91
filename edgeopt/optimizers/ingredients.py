"""What an update may need beside the gradient: random numbers and curvature.

A rule declares them in `Optimizer.ingredients`; whoever runs the rule provides them. In a bundle the training package
does: random numbers come from the bundle's own seeded generator, curvature from further passes through the model.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgeopt.checks import at_least

__all__ = [
    "Curvature",
    "GaussNewtonBartlett",
    "HutchinsonDiagonal",
    "Ingredient",
    "LayerStatistic",
    "Noise",
    "Normal",
    "Rademacher",
    "Uniform",
]


@dataclass(frozen=True)
class Ingredient:
    """An array in the dtype of the parameter, new at each update."""


@dataclass(frozen=True)
class Noise(Ingredient):
    """Independent random numbers.

    Attributes:
        shape: Of the array; None for that of the parameter.
    """

    shape: tuple[int, ...] | None = None


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
class LayerStatistic(Ingredient):
    """A mean over the batch of what enters or leaves the layer that a matrix belongs to.

    Whoever runs the rule has to compute it. Bundles cannot: their updates see gradients, not the layers that they came
    from.

    Attributes:
        shape: Of the array.
        what: What it is the mean of.
    """

    shape: tuple[int, ...]
    what: str


@dataclass(frozen=True)
class Curvature(Ingredient):
    """An estimate of curvature in the shape of the parameter.

    It is computed at the updates 1, 1 + every, 1 + 2·every and so on; at the others the array is zero, and whoever
    declared it uses what it kept.

    Raises:
        ConfigurationError: `every` is below 1.
    """

    every: int = 1

    def __post_init__(self) -> None:
        at_least("every", self.every, 1)


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
