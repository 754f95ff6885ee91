"""IA3: a factor for each feature that comes out of a layer, or goes into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.adapters.base import LayerAdapter, NumpyArray, matches
from edgeopt.adapters.layers import Layer
from edgeopt.adapters.place import Place
from edgeopt.array_types import Array, Namespace

__all__ = ["IA3"]

_FACTORS = "ia3_l"


@dataclass(frozen=True)
class IA3(LayerAdapter):
    """y = l (W x + b), with a vector l that begins at one; in layers of `feedforward`, y = W (l x) + b.

    The authors scale keys, values and what goes into the second layer of each feed-forward block; give these as
    `targets`, and the last also as `feedforward`.

    Source: H. Liu et al., "Few-shot parameter-efficient fine-tuning is better and cheaper than in-context learning"
    (2022). Names and shapes are those of PEFT.

    Attributes:
        targets: See `LayerAdapter`.
        feedforward: Patterns of the layers, among these, whose input is scaled.
    """

    kind: ClassVar[str] = "ia3"

    targets: str | Sequence[str] | None = None
    feedforward: str | Sequence[str] = ()

    def refuses(self, layer: Layer) -> str | None:
        """Indices cannot be scaled, and neither can the input of one that keeps the groups of its channels apart."""
        if layer.kind == "embedding":
            return "it is an embedding, which IA3 is not for"
        if layer.computed_bias:
            return "what it adds to its product is no parameter"
        if self._scales_input(layer) and layer.groups > 1:
            return "it is a convolution in groups, whose input IA3 does not scale"
        return None

    def parameters(self, layer: Layer, weight: NumpyArray, random: np.random.Generator) -> dict[str, NumpyArray]:
        """The factors."""
        length = layer.features_in if self._scales_input(layer) else layer.features_out
        if layer.kind == "convolution":
            return {_FACTORS: np.ones((1, length, *[1] * len(layer.shape[2:])), layer.dtype)}
        return {_FACTORS: np.ones((1, length) if self._scales_input(layer) else (length, 1), layer.dtype)}

    def forward(self, xp: Namespace, place: Place, own: Mapping[str, Array]) -> Array:
        """The result, or the layer once more, scaled."""
        if not self._scales_input(place.layer):
            return place.result * place.across(own[_FACTORS])
        product = place.product(place.data * place.across_data(own[_FACTORS]))
        bias = place.bias()
        return product if bias is None else product + place.across(bias)

    def merged(
        self, xp: Namespace, layer: Layer, weight: Array, bias: Array | None, own: Mapping[str, Array]
    ) -> tuple[Array, Array | None]:
        """The factors in the rows of the weight and in the bias, or in its columns."""
        factors, kernel = own[_FACTORS], [1] * (len(layer.shape) - 2)
        if self._scales_input(layer):
            return weight * xp.reshape(factors, (1, -1, *kernel)), bias
        scaled = weight * xp.reshape(factors, (-1, 1, *kernel))
        return scaled, None if bias is None else bias * xp.reshape(factors, (-1,))

    def config(self, layers: Sequence[Layer]) -> dict[str, Any]:
        """PEFT's `IA3Config`."""
        return {
            "peft_type": "IA3",
            "fan_in_fan_out": any(layer.lies_across for layer in layers),
            "target_modules": sorted({layer.module for layer in layers}),
            "feedforward_modules": sorted({layer.module for layer in layers if self._scales_input(layer)}),
        }

    def _scales_input(self, layer: Layer) -> bool:
        patterns = (self.feedforward,) if isinstance(self.feedforward, str) else self.feedforward
        return any(matches(layer, pattern) for pattern in patterns)
