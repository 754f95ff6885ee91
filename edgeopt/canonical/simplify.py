"""Make a graph small: shape arithmetic folded, branches that are never taken removed."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common_passes
from onnxscript.optimizer import fold_constants

from edgeopt.canonical.naming import fix_names
from edgeopt.canonical.reshapes import make_reshapes_static

__all__ = ["simplify"]


def simplify(model: ir.Model) -> None:
    """Prepare a forward graph for differentiation, in place.

    An If whose condition turns out to be constant gives way to the branch it takes. Equal expressions are not merged
    here: two dropouts of one tensor are two masks until they are lowered.
    """
    for _ in range(2):
        # Not strict: what cannot be inferred stays as the exporter wrote it.
        common_passes.ShapeInferencePass(strict_mode=False)(model)
        fold_constants(model, onnx_shape_inference=True)
        make_reshapes_static(model.graph)
        # Branches that were inlined may bring along names that are taken.
        fix_names(model)
    common_passes.IdentityEliminationPass()(model)
    common_passes.RemoveUnusedNodesPass()(model)
    common_passes.RemoveUnusedOpsetsPass()(model)
