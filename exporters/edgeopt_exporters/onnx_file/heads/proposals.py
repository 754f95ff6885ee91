"""Which weights of a file one might train, and what each choice costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from edgeopt.autodiff.reach import origins
from edgeopt.tracing.subgraphs import operands
from edgeopt_exporters.onnx_file.heads.cutting import prepare
from edgeopt_exporters.onnx_file.heads.finding import find_head
from edgeopt_exporters.onnx_file.reading import OnnxModel
from edgeopt_exporters.onnx_file.role_table import row_of
from edgeopt_exporters.onnx_file.weights import Constant, lift_weights

__all__ = ["Proposal", "proposals_of"]

_NORMALISING = ("scale of", "shift of")
_BIASES = ("bias", "shift of")


@dataclass(frozen=True)
class Proposal:
    """A choice of weights to train.

    Attributes:
        name: What they are: the last layer, the biases.
        parameters: Their names, which `trainable=` takes.
        elements: How many numbers they hold; the gradient has as many, AdamW's state twice as many.
        layers: Through how many layers the backward pass goes.
        of: How many layers there are.
    """

    name: str
    parameters: tuple[str, ...]
    elements: int
    layers: int
    of: int

    def to_dict(self) -> dict[str, Any]:
        """As plain strings, numbers and lists, for JSON."""
        return {
            "name": self.name,
            "parameters": list(self.parameters),
            "elements": self.elements,
            "layers": self.layers,
            "of": self.of,
        }


def proposals_of(model: OnnxModel) -> list[Proposal]:
    """Choices from cheap to dear: the last layer, normalisations, biases, everything; those that a file has.

    Raises:
        UnsupportedModelError: The file cannot be read.
    """
    graph = prepare(model).graph
    head = find_head(graph)
    weights = lift_weights(graph)
    before = set() if head is None else origins(head.features, along_gradients=False)
    constants = [one for one in weights.constants if one.role == "parameter"]
    chosen: dict[str, list[Constant]] = {
        "last layer": [] if head is None else _behind(constants, before),
        "normalisations": [one for one in constants if one.reason.startswith(_NORMALISING)],
        "biases": [one for one in constants if one.reason.startswith(_BIASES)],
        "everything": constants,
    }
    layers = _layers_behind(graph, constants)
    found = [
        Proposal(
            name=name,
            parameters=tuple(one.name for one in some),
            elements=sum(one.elements for one in some),
            layers=_layers_behind(graph, some),
            of=layers,
        )
        for name, some in chosen.items()
        if some
    ]
    return [one for one in found if one.name == "everything" or one.parameters != found[-1].parameters]


def _layers_behind(graph: ir.Graph, constants: Sequence[Constant]) -> int:
    """How many layers depend on some weights, their own or others'."""
    names = {one.name for one in constants}
    moved: set[ir.Value | None] = {value for value in graph.inputs if value.name in names}
    count = 0
    for node in graph:
        if any(value in moved for value in operands(node)):
            moved.update(node.outputs)
            count += _is_layer(node)
    return count


def _behind(constants: Iterable[Constant], before: set[ir.Value]) -> list[Constant]:
    """The constants that the last layer's features are not computed from."""
    read = {value.name for value in before}
    return [one for one in constants if one.name not in read]


def _is_layer(node: ir.Node) -> bool:
    """Whether one of its inputs is usually a weight, and it is no normalisation."""
    rows = [row_of(node, position) for position in range(len(node.inputs))]
    return any(row is not None and row.reason.startswith(("weight of", "table that")) for row in rows)
