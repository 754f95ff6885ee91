"""Make a graph small: shape arithmetic folded, functions inlined, what nobody uses removed."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common_passes
from onnxscript.optimizer import fold_constants

from edgeopt.training.reshapes import make_reshapes_static

__all__ = ["clean_up", "simplify"]


def simplify(model: ir.Model) -> None:
    """Prepare a forward graph for differentiation, in place.

    Equal expressions are not merged here: two dropouts of one tensor are two masks until they are lowered.
    """
    common_passes.InlinePass()(model)
    common_passes.ClearMetadataAndDocStringPass()(model)
    for _ in range(2):
        # Not strict: what cannot be inferred stays as the exporter wrote it.
        common_passes.ShapeInferencePass(strict_mode=False)(model)
        fold_constants(model, onnx_shape_inference=True)
        make_reshapes_static(model.graph)
    common_passes.IdentityEliminationPass()(model)
    common_passes.RemoveUnusedNodesPass()(model)
    common_passes.RemoveUnusedOpsetsPass()(model)


def clean_up(model: ir.Model) -> None:
    """Leave a finished graph without repetition and without what does not reach an output, in place."""
    common_passes.CommonSubexpressionEliminationPass()(model)
    common_passes.RemoveUnusedNodesPass()(model)
    common_passes.TopologicalSortPass()(model)
    common_passes.ClearMetadataAndDocStringPass()(model)
    common_passes.RemoveUnusedOpsetsPass()(model)
    _forget_types(model)


def _forget_types(model: ir.Model) -> None:
    """Types of intermediate tensors are a quarter of a file, and every runtime infers them anyway."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        for node in graph:
            for value in node.outputs:
                if not value.is_graph_output():
                    value.type, value.shape = None, None
