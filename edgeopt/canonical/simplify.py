"""Make a graph small: shape arithmetic folded, branches that are never taken removed."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common_passes
from onnxscript.optimizer import fold_constants

from edgeopt.canonical.logarithms import join_log_sigmoid
from edgeopt.canonical.naming import fix_names
from edgeopt.canonical.pooling import pool_before_relu
from edgeopt.canonical.reshapes import make_reshapes_static
from edgeopt.canonical.sequences import eliminate_sequences
from edgeopt.tracing.subgraphs import bodies, remove_unused

__all__ = ["simplify"]

_LARGEST_SHAPE = 64


def simplify(model: ir.Model) -> None:
    """Prepare a forward graph for differentiation, in place.

    An If whose condition turns out to be constant gives way to the branch it takes. Equal expressions are not merged
    here: two dropouts of one tensor are two masks until they are lowered.
    """
    size = None
    # What one round folds tells the next one's inference the sizes behind it.
    while size != (size := sum(1 for _ in ir.traversal.RecursiveGraphIterator(model.graph))):
        eliminate_sequences(model.graph)
        # Not strict: what cannot be inferred stays as the exporter wrote it.
        common_passes.ShapeInferencePass(strict_mode=False)(model)
        fold_constants(model, onnx_shape_inference=True, should_fold=_is_folded)
        make_reshapes_static(model.graph)
        _remove_unused(model)
        # Branches that were inlined may bring along names that are taken.
        fix_names(model)
    _eliminate_identities(model)
    pool_before_relu(model.graph)
    join_log_sigmoid(model.graph)
    _compute_results_inside(model.graph)
    fix_names(model)
    _remove_unused(model)
    common_passes.RemoveUnusedOpsetsPass()(model)


def _remove_unused(model: ir.Model) -> None:
    # All at once; onnx-ir's pass, which removes one after the other, is left with outputs and initializers.
    remove_unused(model.graph)
    common_passes.RemoveUnusedNodesPass()(model)


def _eliminate_identities(model: ir.Model) -> None:
    """Let readers read the original; each of the graph's outputs stays a tensor of its own under its own name."""
    outputs = model.graph.outputs
    names = [value.name for value in outputs]
    common_passes.IdentityEliminationPass()(model)
    for position, (name, value) in enumerate(zip(names, list(outputs), strict=True)):
        if value.name != name:
            copy = ir.Node("", "Identity", [value], num_outputs=1)
            copy.outputs[0].name, copy.outputs[0].type, copy.outputs[0].shape = name, value.type, value.shape
            model.graph.append(copy)
            outputs[position] = copy.outputs[0]


def _is_folded(node: ir.Node) -> bool | None:
    """What differs from onnxscript's own choice: ConstantOfShape is folded if it is no larger than a shape.

    GatherElements is not: onnx's evaluator, which does the folding, fails at some shapes of its operands.
    """
    if node.op_type == "GatherElements":
        return False
    if node.op_type != "ConstantOfShape" or node.domain:
        return None
    size = None if node.inputs[0] is None else ir.convenience.get_const_tensor(node.inputs[0])
    return None if size is None else int(np.prod(size.numpy())) <= _LARGEST_SHAPE


def _compute_results_inside(graph: ir.Graph) -> None:
    """A body may not return a tensor from outside as it is, which is what the removal of an Identity leaves.

    Nor may it return one tensor twice: ONNX Runtime would write the first of the two and leave the other undefined.
    """
    for node in ir.traversal.RecursiveGraphIterator(graph):
        for body in bodies(node):
            returned: set[ir.Value] = set()
            for position, value in enumerate(body.outputs):
                producer = value.producer()
                if producer is None or producer.graph is not body or value in returned:
                    copy = ir.Node("", "Identity", [value], num_outputs=1)
                    copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
                    body.append(copy)
                    body.outputs[position] = copy.outputs[0]
                returned.add(value)
