"""Nodes again, with other tensors for those that they read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import onnx_ir as ir

__all__ = ["Copies", "copy_graph", "copy_nodes", "copy_value"]

#: What stands for a tensor in the copies.
Copies: TypeAlias = "dict[ir.Value, ir.Value]"


def copy_value(value: ir.Value, name: str | None) -> ir.Value:
    """A tensor of the same type and shape, which nothing computes yet."""
    return ir.Value(name=name, type=value.type, shape=value.shape, const_value=value.const_value)


def copy_nodes(nodes: Iterable[ir.Node], copies: Copies, prefix: str) -> Iterator[ir.Node]:
    """The nodes again, bodies included, named after their operators behind a prefix; their results go into `copies`."""
    for index, node in enumerate(nodes):
        stem = f"{prefix}{node.op_type.lower()}_{index}"
        attributes = [
            ir.AttrGraph(key, copy_graph(attribute.as_graph(), copies, f"{stem}_"))
            if attribute.type is ir.AttributeType.GRAPH
            else attribute
            for key, attribute in node.attributes.items()
        ]
        inputs = [None if value is None else copies[value] for value in node.inputs]
        outputs = [
            copy_value(value, f"{stem}_{position}" if value.name else "") for position, value in enumerate(node.outputs)
        ]
        copies.update(zip(node.outputs, outputs, strict=True))
        yield ir.Node(node.domain, node.op_type, inputs, attributes, outputs=outputs, name=stem)


def copy_graph(graph: ir.Graph, copies: Copies, prefix: str) -> ir.Graph:
    """A body again; what it takes from outside is looked up in `copies`."""
    inputs = []
    for position, value in enumerate(graph.inputs):
        copies[value] = copy_value(value, f"{prefix}operand_{position}")
        inputs.append(copies[value])
    nodes = list(copy_nodes(graph, copies, prefix))
    return ir.Graph(inputs, [copies[value] for value in graph.outputs], nodes=nodes, name=f"{prefix}body")
