"""Sparse updates: some rows of some weights train, as many as a budget of memory allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from edgeopt.adapters.base import LayerAdapter, NumpyArray
from edgeopt.adapters.layers import Layer
from edgeopt.adapters.place import Place
from edgeopt.array_types import Array, Namespace
from edgeopt.checks import fraction, positive, require
from edgeopt.errors import ParameterPatternError

__all__ = ["SparseUpdate"]

_ROWS = "rows.weight"
_KIB = 1024
# What a trained number takes in float32: itself, twice over while it is written, its gradient, and two averages.
_BYTES = 5 * 4

Criterion = Literal["norm", "last", "first"]


@dataclass(frozen=True)
class SparseUpdate(LayerAdapter):
    """Rows of weights train: features that come out of linear layers, channels of convolutions; the others stay.

    A layer's chosen rows are a weight of their own, beside one that stays. Training is that of the whole weight whose
    gradient is zero elsewhere, to the last bit but for the order of sums; gradients, optimizer state and the
    activations in front of layers without rows are not kept.

    Which rows is settled before training, by `criterion`, from weights alone:

    - `"norm"`: rows with the largest Euclidean norm for the root of their length, whatever the layer, as in magnitude
      pruning: rows of large weights move the output most.
    - `"last"`: layers from the last one back, in each the rows with the largest norm: the backward pass ends early.
    - `"first"`: rows in the order of the weight, in each layer the same share.

    `share` says which part of each layer's rows may train; `memory_kb` what all of them together may take, in KiB of
    float32 numbers: 20 bytes for each that trains, as under Adam (value, next value, gradient, two averages).

    Source: after J. Lin et al., "On-device training under 256KB memory" (2022), where sparse layers and channels are
    found by a search with data; the criteria here need none, and `rows` takes what a search has found.

    Attributes:
        memory_kb: The budget; None for no other limit than `share`.
        share: The largest part of a layer's rows that trains.
        criterion: What comes first.
        targets: See `LayerAdapter`; but None stands for every linear layer and convolution.
        rows: Which rows, by the name of the weight, if that is known; nothing else is asked then.

    Raises:
        ConfigurationError: Neither budget nor share nor rows, or a number out of its range.
    """

    kind: ClassVar[str] = "sparse_update"

    memory_kb: float | None = None
    share: float = 1.0
    criterion: Criterion = "norm"
    targets: str | Sequence[str] | None = None
    rows: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.memory_kb is not None:
            positive("memory_kb", self.memory_kb)
        fraction("share", self.share, closed=True)
        positive("share", self.share)
        require(
            self.criterion in get_args(Criterion),
            f"criterion must be one of {', '.join(get_args(Criterion))}, got {self.criterion!r}",
        )
        require(
            self.memory_kb is not None or self.share < 1.0 or bool(self.rows),
            "SparseUpdate needs memory_kb, a share below 1.0 or rows; LastLayers trains whole layers",
        )

    def refuses(self, layer: Layer) -> str | None:
        """Rows of an embedding's weight are features here, and indices are what one would want."""
        if layer.kind == "embedding":
            return "it is an embedding, which SparseUpdate is not for"
        if layer.groups > 1 and layer.shape[:2] != (layer.groups, 1):
            return "it is a convolution in groups of several channels"
        return None

    def choose(self, layers: Sequence[Layer]) -> list[Layer]:
        """The layers some of whose rows train, or may: without targets every linear layer and convolution."""
        if self.targets is None:
            chosen = [layer for layer in layers if self.refuses(layer) is None]
        else:
            chosen = super().choose(layers)
        if missing := self.rows.keys() - {layer.weight for layer in chosen}:
            raise ParameterPatternError(f"SparseUpdate has rows of {sorted(missing)}, which are no weights of layers.")
        return [layer for layer in chosen if layer.weight in self.rows] if self.rows else chosen

    def settled(self, layers: Sequence[Layer], weights: Mapping[str, NumpyArray]) -> SparseUpdate:
        """The same with its rows.

        Raises:
            ParameterPatternError: No row fits into the budget.
        """
        if self.rows:
            return self
        left = math.inf if self.memory_kb is None else self.memory_kb * _KIB
        allowed = {layer.weight: math.ceil(self.share * layer.features_out) for layer in layers}
        found: dict[str, list[int]] = {}
        for layer, row in self._in_order(layers, weights):
            cost = _BYTES * math.prod(layer.shape[1:])
            if len(found.get(layer.weight, ())) < allowed[layer.weight] and cost <= left:
                found.setdefault(layer.weight, []).append(row)
                left -= cost
        if not found:
            least = min(_BYTES * math.prod(layer.shape[1:]) for layer in layers) / _KIB
            raise ParameterPatternError(
                f"SparseUpdate: no row fits into {self.memory_kb} KiB; the smallest takes {least:.2f}."
            )
        return replace(self, rows={name: tuple(sorted(rows)) for name, rows in found.items()})

    def parameters(self, layer: Layer, weight: NumpyArray, random: np.random.Generator) -> dict[str, NumpyArray]:
        """The rows as they are."""
        return {_ROWS: np.ascontiguousarray(weight[list(self.rows[layer.weight])])}

    def forward(self, xp: Namespace, place: Place, own: Mapping[str, Array]) -> Array:
        """The plain product with the chosen features taken from the product with their own rows."""
        layer, rows = place.layer, self.rows[place.layer.weight]
        others = place.without_bias
        ours = place.rows(own[_ROWS], np.asarray(rows, np.int64))
        joined = xp.concat([others, ours], axis=place.axis)
        picked = place.pick(joined, _places(layer.features_out, rows))
        bias = place.bias()
        return picked if bias is None else picked + place.across(bias)

    def merged(
        self, xp: Namespace, layer: Layer, weight: Array, bias: Array | None, own: Mapping[str, Array]
    ) -> tuple[Array, Array | None]:
        """The rows in their places."""
        joined = xp.concat([weight, own[_ROWS]], axis=0)
        places = xp.asarray(_places(layer.features_out, self.rows[layer.weight]))
        return xp.take(joined, places, axis=0), bias

    def config(self, layers: Sequence[Layer]) -> dict[str, Any]:
        """PEFT has no such adapter; each layer's rows are listed as text, numbers separated by spaces."""
        listed = [f"{layer.weight}: {' '.join(map(str, self.rows[layer.weight]))}" for layer in layers]
        return {"edgeopt_type": "SPARSE_UPDATE", "rows": listed}

    def _in_order(self, layers: Sequence[Layer], weights: Mapping[str, NumpyArray]) -> Iterator[tuple[Layer, int]]:
        norms = {layer.weight: _norms(weights[layer.weight]) for layer in layers}
        each = [(layer, int(row)) for layer in layers for row in np.argsort(-norms[layer.weight], kind="stable")]
        if self.criterion == "norm":
            yield from sorted(each, key=lambda pair: -norms[pair[0].weight][pair[1]])
        elif self.criterion == "last":
            places = {layer.weight: place for place, layer in enumerate(layers)}
            yield from sorted(each, key=lambda pair: -places[pair[0].weight])
        else:
            lengths = {layer.weight: layer.features_out for layer in layers}
            yield from sorted(
                ((layer, row) for layer in layers for row in range(layer.features_out)),
                key=lambda pair: (pair[1] + 1) / lengths[pair[0].weight],
            )


def _norms(weight: NumpyArray) -> NumpyArray:
    """Of each row, for the root of its length."""
    rows = weight.reshape(len(weight), -1).astype(np.float64)
    return np.asarray(np.sqrt(np.mean(np.square(rows), axis=1)))


def _places(count: int, rows: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where each feature is found, if those of the rows stand behind all of them."""
    places = np.arange(count, dtype=np.int64)
    places[list(rows)] = count + np.arange(len(rows))
    return places
