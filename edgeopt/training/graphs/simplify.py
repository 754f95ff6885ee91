"""Make a finished graph small: equal expressions merged, what nobody uses removed."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from edgeopt.tracing import DOMAIN, subgraphs

__all__ = ["clean_up", "remove_unused"]


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
