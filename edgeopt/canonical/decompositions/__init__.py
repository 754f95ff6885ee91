"""Operators said with others, one module a kind; importing this package fills the table."""

from edgeopt.canonical.decompositions import (
    activations,
    attention,
    cache,
    convolution,
    cumulative,
    fused_normalisation,
    losses,
    machine_learning,
    microsoft_attention,
    normalisation,
    products,
    quantized_weights,
    relative_position,
    renamed,
    root_mean_square,
    rotary,
)

__all__ = [
    "activations",
    "attention",
    "cache",
    "convolution",
    "cumulative",
    "fused_normalisation",
    "losses",
    "machine_learning",
    "microsoft_attention",
    "normalisation",
    "products",
    "quantized_weights",
    "relative_position",
    "renamed",
    "root_mean_square",
    "rotary",
]
