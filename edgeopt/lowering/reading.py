"""Every output is read where some are: of nodes with several, whose outputs cannot be left out.

From the second run on, ONNX Runtime 1.17 and 1.18 give a tensor that nobody reads the memory of one in use: the last
state of a Scan, say, of which only the collected outputs matter.
"""

from __future__ import annotations

import onnx_ir as ir

from edgeopt.lowering.places import Places
from edgeopt.tracing import Array, Tracer
from edgeopt.tracing.ordering import after, zero_after
from edgeopt.tracing.subgraphs import bodies

__all__ = ["read_all_outputs"]

_SEVERAL = frozenset({"If", "Loop", "Scan", "TopK"})


def read_all_outputs(tracer: Tracer, places: Places) -> None:
    """Tie, in place, the unread outputs of such nodes to one that is read, whose value does not change."""
    for node in list(tracer.graph):
        for body in bodies(node):
            inner = tracer.within(body)
            inside = Places(inner)
            read_all_outputs(inner, inside)
            inside.restore()
        unread = [value for value in node.outputs if not value.uses() and not value.is_graph_output()]
        if node.domain or node.op_type not in _SEVERAL or not unread or len(unread) == len(node.outputs):
            continue
        known = [value for value in node.outputs if value not in unread and value.shape is not None]
        if known and all(value.dtype is not None for value in unread):
            with places.of(node):
                _tie(tracer, known[0], [tracer.wrap(value) for value in unread])


def _tie(tracer: Tracer, value: ir.Value, unread: list[Array]) -> None:
    readers = list(value.uses())
    tied = after(tracer.wrap(value), zero_after(unread)).value
    for node, position in readers:
        node.replace_input_with(position, tied)
    outputs = tracer.graph.outputs
    for position, output in enumerate(list(outputs)):
        if output is value:
            name, value.name = value.name, tracer.fresh_name(f"{value.name}_inner")
            tied.name = name
            outputs[position] = tied
