"""LoRA: a product of two thin matrices beside a weight that stays; and LoRA+, rsLoRA, which differ in numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from edgeopt.adapters.base import LayerAdapter, NumpyArray
from edgeopt.adapters.layers import Layer
from edgeopt.adapters.place import Place
from edgeopt.array_types import Array, Namespace
from edgeopt.checks import fraction, positive, require
from edgeopt.optimizers import Group
from edgeopt.optimizers.groups import exactly

__all__ = ["LoRA", "low_rank"]


@dataclass(frozen=True)
class LoRA(LayerAdapter):
    """y = W x + b + s B A x, of which only A (rank, in) and B (out, rank) train; s = alpha / rank.

    B begins at zero, so that training begins at the model itself, and A uniform in ±1/√in; of an embedding A begins at
    zero and B normal. Nowhere is B A computed, or the gradient of W.

    With `rank_stabilized`, s = alpha / √rank (rsLoRA), which keeps updates as large at higher ranks. With a
    `learning_rate_ratio`, B learns so many times as fast (LoRA+, whose authors take 16; embeddings excepted): it
    becomes the `lr_multiplier` of a group of parameters, as with `edgeopt.optimizers.lora_plus`, which a device can
    change.

    Source: E. Hu et al., "LoRA: Low-rank adaptation of large language models" (2021); D. Kalajdzievski, "A rank
    stabilization scaling factor for fine-tuning with LoRA" (2023); S. Hayou et al., "LoRA+" (2024). Names, shapes and
    first values are those of PEFT, except beside convolutions in groups: there A keeps to the groups too, since the
    sum could not be merged otherwise.

    Attributes:
        rank: How many rows A and columns B has.
        alpha: s times the rank; as large as the rank by default.
        targets: See `LayerAdapter`.
        dropout: The share of what goes into A that is dropped in training.
        rank_stabilized: Whether to divide by the root of the rank.
        learning_rate_ratio: How many times as fast B learns as A.

    Raises:
        ConfigurationError: A number out of its range.
    """

    kind: ClassVar[str] = "lora"

    rank: int = 8
    alpha: float | None = None
    targets: str | Sequence[str] | None = None
    dropout: float = 0.0
    rank_stabilized: bool = False
    learning_rate_ratio: float = 1.0

    def __post_init__(self) -> None:
        require(type(self.rank) is int and self.rank >= 1, f"rank must be a whole number from 1 on, got {self.rank!r}")
        positive("alpha", self.rank if self.alpha is None else self.alpha)
        fraction("dropout", self.dropout)
        positive("learning_rate_ratio", self.learning_rate_ratio)

    @property
    def scaling(self) -> float:
        """The factor of B A."""
        alpha = self.rank if self.alpha is None else self.alpha
        return alpha / (math.sqrt(self.rank) if self.rank_stabilized else self.rank)

    def refuses(self, layer: Layer) -> str | None:
        """The rank is shared among the groups of a convolution."""
        if self.rank % layer.groups:
            return f"its {layer.groups} groups do not divide the rank {self.rank}"
        return None

    def parameters(self, layer: Layer, weight: NumpyArray, random: np.random.Generator) -> dict[str, NumpyArray]:
        """A and B."""
        inner, kernel = layer.shape[1], layer.shape[2:]
        first, second = _names(layer)
        if layer.kind == "embedding":
            normal = random.standard_normal((layer.features_out, self.rank))
            return {first: np.zeros((self.rank, inner), layer.dtype), second: normal.astype(layer.dtype)}
        bound = 1.0 / math.sqrt(inner * math.prod(kernel))
        uniform = random.uniform(-bound, bound, (self.rank, inner, *kernel))
        zeros = np.zeros((layer.features_out, self.rank // layer.groups, *[1] * len(kernel)), layer.dtype)
        return {first: uniform.astype(layer.dtype), second: zeros}

    def forward(self, xp: Namespace, place: Place, own: Mapping[str, Array]) -> Array:
        """The layer's result, and the branch beside it."""
        return place.result + low_rank(xp, place, own, place.dropout(self.dropout), self.scaling)

    def merged(
        self, xp: Namespace, layer: Layer, weight: Array, bias: Array | None, own: Mapping[str, Array]
    ) -> tuple[Array, Array | None]:
        """W + s B A."""
        return weight + self.product(xp, layer, own) * self.scaling, bias

    def product(self, xp: Namespace, layer: Layer, own: Mapping[str, Array]) -> Array:
        """B A in the shape of the weight."""
        groups, (first, second) = layer.groups, _names(layer)
        wide = xp.reshape(own[first], (groups, self.rank // groups, -1))
        tall = xp.reshape(own[second], (groups, layer.features_out // groups, self.rank // groups))
        return xp.reshape(xp.matmul(tall, wide), layer.shape)

    def groups(self, names: Sequence[str]) -> tuple[Group, ...]:
        """B by itself, if it learns at another rate."""
        if self.learning_rate_ratio == 1.0:
            return ()
        chosen = tuple(exactly(name) for name in names if name.endswith(".lora_B.weight"))
        return (Group(chosen, name="lora_B", lr_multiplier=self.learning_rate_ratio),) if chosen else ()

    def steady(self) -> LoRA:
        """The same without dropout."""
        return replace(self, dropout=0.0)

    def config(self, layers: Sequence[Layer]) -> dict[str, Any]:
        """PEFT's `LoraConfig`."""
        return {
            "peft_type": "LORA",
            "r": self.rank,
            "lora_alpha": self.rank if self.alpha is None else self.alpha,
            "lora_dropout": self.dropout,
            "use_rslora": self.rank_stabilized,
            "use_dora": False,
            "bias": "none",
            "fan_in_fan_out": any(layer.lies_across for layer in layers),
            "target_modules": sorted({layer.module for layer in layers}),
        }


def low_rank(xp: Namespace, place: Place, own: Mapping[str, Array], data: Array, scaling: float) -> Array:
    """s B A x."""
    first, second = _names(place.layer)
    inner = place.through(data, own[first])
    if scaling != 1.0:
        inner = inner * float(scaling)  # the smallest of the three tensors
    rows = xp.reshape(own[second], (place.layer.features_out, -1))
    return place.mix(inner, rows)


def _names(layer: Layer) -> tuple[str, str]:
    if layer.kind == "embedding":
        return "lora_embedding_A", "lora_embedding_B"
    return "lora_A.weight", "lora_B.weight"
