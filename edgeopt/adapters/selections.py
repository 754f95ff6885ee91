"""Adapters that add nothing: some of the model's own parameters train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import onnx_ir as ir

from edgeopt.adapters.base import Selection
from edgeopt.adapters.layers import Layer, find_layers
from edgeopt.checks import require
from edgeopt.errors import ParameterPatternError
from edgeopt.training.forward import ForwardModel

__all__ = ["BitFit", "LastLayers"]


@dataclass(frozen=True)
class BitFit(Selection):
    """Every bias trains, and nothing else of the model.

    Biases are the vectors that layers add to their products and normalisations to their results, whatever their names,
    and those called `bias`. A new head is what `trainable` is for.

    Source: E. Ben Zaken et al., "BitFit: Simple parameter-efficient fine-tuning for transformer-based masked
    language-models" (2021).
    """

    kind: ClassVar[str] = "bitfit"

    def select(self, model: ForwardModel) -> list[str]:
        """Biases by name or by what is done with them."""
        added = {layer.bias for layer in find_layers(model)}
        for node in model.train.model.graph:
            added |= {value.name for value in _added(node)}
        names = [
            name
            for name, value in model.parameters.items()
            if value.ndim == 1 and (name in added or name.rpartition(".")[2] == "bias")
        ]
        if not names:
            raise ParameterPatternError("BitFit trains biases, and the model has none.")
        return names

    def config(self, layers: Sequence[Layer]) -> dict[str, Any]:
        """PEFT has no such adapter."""
        return {"edgeopt_type": "BITFIT"}


@dataclass(frozen=True)
class LastLayers(Selection):
    """The last layers train: linear ones and convolutions, counted from the outputs, with their biases.

    What stands behind the first of them, such as a normalisation, trains too: the backward pass ends there anyway.

    Attributes:
        count: How many layers.
    """

    kind: ClassVar[str] = "last_layers"

    count: int = 1

    def __post_init__(self) -> None:
        require(
            type(self.count) is int and self.count >= 1, f"count must be a whole number from 1 on, got {self.count!r}"
        )

    def select(self, model: ForwardModel) -> list[str]:
        """The parameters that are read at the first of these layers or behind it."""
        layers = [layer for layer in find_layers(model) if layer.kind != "embedding"]
        if not layers:
            raise ParameterPatternError("LastLayers finds no linear layer and no convolution in the model.")
        weights = {layer.weight for layer in layers[-self.count :]}
        graph = model.train.model.graph
        inputs = {value for value in graph.inputs if value.name in model.parameters}
        behind: set[ir.Value] = set()
        names: set[str] = set()
        for node in graph:
            values = [value for value in node.inputs if value is not None]
            if node.op_type == "Identity" and values and values[0] in inputs:
                continue
            if any(value in behind or value.name in weights for value in values):
                names |= {value.name or "" for value in values if value in inputs}
                names |= {value.name or "" for value in _through(values, inputs)}
                behind.update(node.outputs)
        return [name for name in model.parameters if name in names]

    def config(self, layers: Sequence[Layer]) -> dict[str, Any]:
        """PEFT has no such adapter."""
        return {"edgeopt_type": "LAST_LAYERS", "count": self.count}


def _added(node: ir.Node) -> list[ir.Value]:
    """Vectors that a node adds."""
    positions = {"BatchNormalization": (2,), "LayerNormalization": (2,), "InstanceNormalization": (2,)}
    positions |= {"GroupNormalization": (2,)}
    found = [node.inputs[place] for place in positions.get(node.op_type, ()) if place < len(node.inputs)]
    return [value for value in found if value is not None and value.is_graph_input()]


def _through(values: Sequence[ir.Value], inputs: set[ir.Value]) -> set[ir.Value]:
    """The parameters of which these are other views."""
    found: set[ir.Value] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value in inputs:
            found.add(value)
        elif (node := value.producer()) is not None and node.op_type in ("Cast", "Identity", "Reshape", "Transpose"):
            waiting.extend(each for each in node.inputs[:1] if each is not None)
    return found
