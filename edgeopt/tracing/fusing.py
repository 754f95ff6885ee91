"""Stretches of a graph that stand for one operation, marked while they are recorded.

A native kernel does in one pass what the plain nodes of a gradient rule do in ten. `fused` records the plain nodes
between markers: an Enter for each operand, a Leave for each result. Everything that works on graphs sees plain nodes
and two kinds of identities. When the graph is finished, `edgeopt.outlining` makes a call of a model-local function out
of each stretch, or removes the markers.

Nothing inside is shared with what is outside, since it reads markers of its own; so no pass that merges equal nodes can
tear it apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from edgeopt.errors import TracingError
from edgeopt.tracing.array import Array
from edgeopt.tracing.subgraphs import operands
from edgeopt.tracing.tracer import DOMAIN

__all__ = ["ENTER", "LEAVE", "all_of", "drop_unread", "fused", "is_boundary", "nodes_inside"]

ENTER, LEAVE = "Enter", "Leave"

_Body = Callable[..., "Array | Sequence[Array | None] | None"]


def is_boundary(node: ir.Node) -> bool:
    """Whether a node is one of the markers."""
    return node.domain == DOMAIN and node.op_type in (ENTER, LEAVE)


def drop_unread(graph: ir.Graph) -> None:
    """Remove, in place, the Leave nodes that nobody reads: what is computed for them alone then counts as unread."""
    leaving = (node for node in graph if is_boundary(node) and node.op_type == LEAVE)
    unread = [node for node in leaving if not (node.outputs[0].uses() or node.outputs[0].is_graph_output())]
    graph.remove(unread, safe=True)


def nodes_inside(graph: ir.Graph) -> set[ir.Node]:
    """The nodes between markers."""
    reached: set[ir.Value | None] = set()
    inside = set()
    for node in graph:
        if is_boundary(node):
            reached.update(node.outputs if node.op_type == ENTER else ())
        elif any(value in reached for value in operands(node)):
            inside.add(node)
            reached.update(node.outputs)
    return inside


def fused(operation: str, arrays: Sequence[Array], body: _Body, **attributes: Any) -> list[Array | None]:
    """Record an array program as one operation, if the tracer marks them; as its plain nodes otherwise.

    The same operation of the same operands is recorded once.

    Args:
        operation: The name of the function, by which a native kernel knows it.
        arrays: What the kernel is given, in order. The program may read nothing else of the graph but constants.
        body: The program: from the operands to the results, None for one that is not needed. In the end the node's
            attribute `results` lists the positions of those that are read.
        attributes: What the kernel has to know besides; None means absent.

    Returns:
        The results as the program gave them.
    """
    tracer = arrays[0].tracer
    if not tracer.marks_operations or tracer.depth or not all(map(_is_supported, arrays)):
        return _as_list(body(*arrays))
    given = {name: value for name, value in attributes.items() if value is not None}
    key = (operation, tuple(array.value for array in arrays), repr(sorted(given.items())))
    known = tracer.marked.get(key)
    if known is not None and all(_is_there(result, tracer.graph) for result in known):
        return list(known)
    region = tracer.fresh_name(operation)
    with tracer.scope(region.rpartition("/")[2]):
        inside = [
            tracer.boundary(ENTER, array, region=region, position=position) for position, array in enumerate(arrays)
        ]
        results = _as_list(body(*inside))
        # A Leave reads every operand, so that none is lost on the way which the kernel is to be given.
        given |= {"region": region, "operation": operation}
        leaving = [
            None if result is None else tracer.boundary(LEAVE, result, *inside, position=position, **given)
            for position, result in enumerate(results)
        ]
    tracer.marked[key] = leaving
    return list(leaving)


def _as_list(results: Array | Sequence[Array | None] | None) -> list[Array | None]:
    return [results] if results is None or isinstance(results, Array) else list(results)


def _is_supported(array: Array) -> bool:
    """Kernels are for float32; integers may come with it."""
    return array.dtype.kind != "f" or array.dtype == np.float32


def _is_there(result: Array | None, graph: ir.Graph) -> bool:
    producer = None if result is None else result.value.producer()
    return result is None or (producer is not None and producer.graph is graph)


def all_of(results: Sequence[Array | None]) -> list[Array]:
    """The results of an operation all of whose results there are."""
    there = [result for result in results if result is not None]
    if len(there) < len(results):
        raise TracingError("An operation was recorded without one of its results.")
    return there
