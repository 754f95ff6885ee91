"""DoRA: the length of each row of a weight and its direction, trained apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.adapters.base import NumpyArray
from edgeopt.adapters.layers import Layer
from edgeopt.adapters.lora import LoRA, low_rank
from edgeopt.adapters.place import Place
from edgeopt.array_types import Array, Namespace

__all__ = ["DoRA"]

_MAGNITUDE = "lora_magnitude_vector"


@dataclass(frozen=True)
class DoRA(LoRA):
    """W' = m (W + s B A) / ‖W + s B A‖, row by row, of which m, A and B train.

    m begins at the rows' lengths. The lengths in the denominator count as constants in the backward pass, as the
    authors propose and PEFT does, so that the gradient of W is not needed. In training they are computed anew in each
    step, which takes the memory of one weight at a time.

    Source: S. Liu et al., "DoRA: Weight-decomposed low-rank adaptation" (2024), with section 4.3. As in PEFT, whose
    names, shapes and first values these are, a row of an embedding's weight is one of its features, over all indices.

    Attributes:
        rank: See `LoRA`, as for all others.
    """

    kind: ClassVar[str] = "dora"

    def parameters(self, layer: Layer, weight: NumpyArray, random: np.random.Generator) -> dict[str, NumpyArray]:
        """A, B and m."""
        lengths = np.sqrt(np.sum(np.square(weight.reshape(layer.features_out, -1)), axis=1)).astype(layer.dtype)
        if layer.kind == "convolution":
            lengths = lengths.reshape(1, -1, *[1] * len(layer.shape[2:]))
        return {**super().parameters(layer, weight, random), _MAGNITUDE: lengths}

    def forward(self, xp: Namespace, place: Place, own: Mapping[str, Array]) -> Array:
        """The layer's result, its product and the branch with new lengths."""
        plain = place.weight
        ratio = self._ratio(xp, place.layer, plain, own)
        data = place.dropout(self.dropout)
        # Dropout is in front of the whole: what it leaves goes through the weight again.
        product = place.product(data) if place.drops(self.dropout) else place.without_bias
        branch = low_rank(xp, place, own, data, self.scaling)
        return place.result + place.across(ratio - 1.0) * product + place.across(ratio) * branch

    def merged(
        self, xp: Namespace, layer: Layer, weight: Array, bias: Array | None, own: Mapping[str, Array]
    ) -> tuple[Array, Array | None]:
        """m (W + s B A) / ‖W + s B A‖."""
        ratio = xp.reshape(self._ratio(xp, layer, weight, own), (-1, *[1] * (len(layer.shape) - 1)))
        return ratio * (weight + self.product(xp, layer, own) * self.scaling), bias

    def config(self, layers: Sequence[Layer]) -> dict[str, Any]:
        """PEFT's `LoraConfig`."""
        return {**super().config(layers), "use_dora": True}

    def _ratio(self, xp: Namespace, layer: Layer, weight: Array, own: Mapping[str, Array]) -> Array:
        """m / ‖W + s B A‖, a vector."""
        moved = weight + self.product(xp, layer, own) * self.scaling
        rows = xp.reshape(moved, (layer.features_out, -1))
        lengths = xp.sqrt(xp.sum(xp.square(rows), axis=1))
        stop = getattr(xp, "stop_gradient", lambda array: array)
        return xp.reshape(own[_MAGNITUDE], (-1,)) / stop(lengths)
