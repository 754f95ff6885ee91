"""Make a finished graph small: equal expressions merged, what nobody uses removed."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from edgeopt.tracing import DOMAIN, subgraphs

__all__ = ["clean_up", "move_to_front", "remove_unused"]


def clean_up(model: ir.Model) -> None:
    """Leave a finished graph without repetition and without what does not reach an output, in place."""
    common_passes.CommonSubexpressionEliminationPass()(model)
    remove_unused(model)
    common_passes.TopologicalSortPass()(model)
    common_passes.ClearMetadataAndDocStringPass()(model)
    common_passes.RemoveUnusedOpsetsPass()(model)
    _forget_types(model)


def remove_unused(model: ir.Model) -> None:
    """Remove the nodes and functions that no output needs, in place."""
    # The pass would take what a removed body captured for used.
    subgraphs.remove_unused(model.graph)
    common_passes.RemoveUnusedNodesPass()(model)
    common_passes.RemoveUnusedFunctionsPass()(model)  # type: ignore[no-untyped-call] # onnx-ir leaves it untyped


def move_to_front(graph: ir.Graph, nodes: Collection[ir.Node]) -> None:
    """Let nodes that depend on no activation come first, in place, so that they run last.

    ONNX Runtime plans a graph depth first from its results, and of what a node reads it computes first what comes last
    in the file. A weight that is decoded in the middle would be decoded before all that leads there, as would every
    other one, and all of them would be in memory at once.
    """
    wanted = {node for node in nodes if node.graph is graph}
    for node in reversed(list(graph)):
        if node in wanted:
            producers = (value.producer() for value in node.inputs if value is not None)
            wanted.update(producer for producer in producers if producer is not None)
    moved = [node for node in graph if node in wanted]
    others = [node for node in graph if node not in wanted]
    if moved and others:
        graph.remove(moved)
        graph.insert_before(others[0], moved)


def _forget_types(model: ir.Model) -> None:
    """Types of intermediate tensors are a quarter of a file, and every runtime infers them anyway.

    Not behind a function: where a native kernel stands for it, nobody looks into its body.
    """
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        for node in graph:
            if node.domain == DOMAIN:
                continue
            for value in node.outputs:
                if not value.is_graph_output():
                    value.type, value.shape = None, None
