"""The gradient rules, one file a kind. Importing this package fills the tables in `edgeopt.autodiff.registry`."""

from edgeopt.autodiff.rules import (
    activations,
    convolution,
    einsum,
    elementwise,
    indexing,
    linear_algebra,
    normalisation,
    pooling,
    random,
    reduction,
    resize,
    scatter,
    shape,
    zero,
)

__all__ = [
    "activations",
    "convolution",
    "einsum",
    "elementwise",
    "indexing",
    "linear_algebra",
    "normalisation",
    "pooling",
    "random",
    "reduction",
    "resize",
    "scatter",
    "shape",
    "zero",
]
