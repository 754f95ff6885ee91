"""Putting something else in a node's place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import onnx_ir as ir

from edgeopt.tracing.array import Array
from edgeopt.tracing.tracer import Tracer

__all__ = ["Replacement", "replace_node"]

# One array needs no tuple, and outputs that nobody uses may be left out.
Replacement: TypeAlias = "Array | Sequence[Array]"


def replace_node(tracer: Tracer, node: ir.Node, replacement: Replacement) -> None:
    """Let arrays stand for a node's outputs, and remove the node from its graph.

    A graph output keeps its name. What computes the arrays was appended at the end of the graph, which therefore has
    to be sorted once all nodes are replaced.
    """
    arrays = [replacement] if isinstance(replacement, Array) else list(replacement)
    for old, array in zip(node.outputs, arrays, strict=False):
        if old.is_graph_output():
            # Only a tensor of this graph, no input and no other output, can take over an output's name.
            producer = array.value.producer()
            taken = producer is None or producer.graph is not tracer.graph or array.value.is_graph_output()
            new = tracer.emit("Identity", array).value if taken else array.value
            name, old.name = old.name, None
            old.replace_all_uses_with(new, replace_graph_outputs=True)
            new.name = name
        else:
            old.replace_all_uses_with(array.value)
    tracer.graph.remove(node, safe=True)
