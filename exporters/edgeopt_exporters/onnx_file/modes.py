"""Training and evaluation: what Dropout and BatchNormalization do in each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import onnx_ir as ir

from edgeopt.canonical.older.editing import rewritten
from edgeopt.tracing import Tracer
from edgeopt.tracing.rewriting import replace_node
from edgeopt.tracing.site import Site

__all__ = ["BatchNormMode", "evaluation_mode", "training_mode"]

BatchNormMode = Literal["file", "frozen", "train"]


def training_mode(graph: ir.Graph, batch_norm: BatchNormMode, *, dropout: bool) -> dict[str, ir.Value]:
    """Put a graph in canonical form into training mode, in place.

    Args:
        graph: Its running statistics are inputs.
        batch_norm: Whose statistics BatchNormalization uses: as the file says, the running ones, or the batch's.
        dropout: Whether Dropout drops.

    Returns:
        The next value of each running statistic that moves, by its name.
    """
    for node in _nodes(graph, "Dropout"):
        _set_dropout(node, dropout)
    graph.sort()
    updates: dict[str, ir.Value] = {}
    for node in _nodes(graph, "BatchNormalization"):
        training = bool(node.attributes.get_int("training_mode", 0)) if batch_norm == "file" else batch_norm == "train"
        # The body of a branch has no way out for new statistics.
        _set_batch_norm(node, training=training and node.graph is graph)
        for operand, result in zip(node.inputs[3:5], node.outputs[1:3], strict=False):
            if operand is not None and operand.is_graph_input():
                updates[operand.name or ""] = result
    return updates


def evaluation_mode(graph: ir.Graph) -> None:
    """Put a graph in canonical form into evaluation mode, in place: running statistics, nothing dropped."""
    for node in _nodes(graph, "Dropout"):
        _set_dropout(node, on=False)
    graph.sort()
    for node in _nodes(graph, "BatchNormalization"):
        _set_batch_norm(node, training=False)


def _nodes(graph: ir.Graph, op_type: str) -> Iterator[ir.Node]:
    for node in list(ir.traversal.RecursiveGraphIterator(graph)):
        if node.op_type == op_type and not node.domain:
            yield node


def _set_dropout(node: ir.Node, on: bool) -> None:
    """Write the ratio and the training flag as inputs."""
    graph = node.graph
    if not isinstance(graph, ir.Graph):
        return
    n = Site(Tracer(graph), node)
    ratio = n.input(1) if n.has(1) else n.tracer.constant(np.float32(0.5))
    replace_node(n.tracer, node, rewritten(n, n.x, ratio, n.tracer.constant(np.bool_(on))))


def _set_batch_norm(node: ir.Node, training: bool) -> None:
    node.attributes.pop("training_mode", None)
    if not training:
        if len(node.outputs) > 1:
            node.resize_outputs(1)
        return
    node.attributes["training_mode"] = ir.AttrInt64("training_mode", 1)
    if len(node.outputs) < 3:
        node.resize_outputs(3)
    for statistic, operand in zip(node.outputs[1:], node.inputs[3:], strict=True):
        if operand is not None:
            statistic.type, statistic.shape = operand.type, operand.shape
        statistic.name = statistic.name or f"{node.name}.{'mean' if statistic is node.outputs[1] else 'variance'}"
