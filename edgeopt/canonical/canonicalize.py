"""From a model as its exporter wrote it to the canonical form."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common_passes
from onnxscript.optimizer import fold_constants

from edgeopt.canonical import decompositions as _decompositions  # noqa: F401  # fills the table
from edgeopt.canonical import older as _older  # noqa: F401  # fills the table
from edgeopt.canonical.copies import copied, deserialized
from edgeopt.canonical.dimensions import name_dimensions
from edgeopt.canonical.inlining import inline_functions
from edgeopt.canonical.loops import declare_loop_inputs
from edgeopt.canonical.naming import fix_names
from edgeopt.canonical.newer import accept_at_target
from edgeopt.canonical.registry import ADAPTERS, DECOMPOSITIONS, Adapter, Decomposition
from edgeopt.canonical.simplify import simplify
from edgeopt.errors import TracingError, UnsupportedModelError
from edgeopt.tracing import IR_VERSION, OPSET, Tracer
from edgeopt.tracing.inference import infer
from edgeopt.tracing.rewriting import Replacement, replace_node
from edgeopt.tracing.site import PROBLEM, Site, qualified_name
from edgeopt.tracing.subgraphs import bodies

__all__ = ["canonicalize", "convert"]


def canonicalize(model: ir.Model | onnx.ModelProto) -> ir.Model:
    """A copy of a model in canonical form.

    Its functions are inlined, its operators are said in the target opset, those of the decomposition table are said
    with others, shape arithmetic is folded, and an If whose condition is constant has given way to one branch.
    Initializers are no inputs any more. Nodes of other domains that have no decomposition stay as they are.

    Raises:
        UnsupportedModelError: The opset is older than 7, or a node has no equivalent at the target opset.
    """
    copy = copied(model) if isinstance(model, ir.Model) else deserialized(model)
    convert(copy)
    simplify(copy)
    return copy


def convert(model: ir.Model) -> None:
    """The first half of `canonicalize`, in place: everything but the folding.

    Raises:
        UnsupportedModelError: As `canonicalize`.
    """
    version = inline_functions(model)
    common_passes.ClearMetadataAndDocStringPass()(model)
    common_passes.RemoveInitializersFromInputsPass()(model)
    name_dimensions(model.graph)
    declare_loop_inputs(model.graph)
    folded = False
    while True:
        fix_names(model)
        # Not strict, and types not compared: what cannot be inferred stays as the exporter wrote it.
        common_passes.ShapeInferencePass(check_type=False, strict_mode=False)(model)
        replaced, waiting = _rewrite(model.graph)
        # Bodies included; a body by itself cannot be sorted.
        model.graph.sort()
        if not waiting or (folded and not replaced):
            break
        if replaced:
            model.opset_imports[""] = OPSET
        else:
            # The rank behind a reshape to a computed shape is known once that is computed.
            fold_constants(model, onnx_shape_inference=True)
            folded = True
    if waiting:
        raise UnsupportedModelError(f"{waiting[0]} cannot be said otherwise: the types of its inputs are not known.")
    if version > OPSET:
        accept_at_target(model.graph, version)
    model.opset_imports[""] = OPSET
    model.ir_version = IR_VERSION
    fix_names(model)


def _rewrite(graph: ir.Graph) -> tuple[bool, list[Site]]:
    """Replace every node that a table knows; whether any was, and those that wait for types."""
    tracer, replaced, waiting = Tracer(graph), False, list[Site]()
    # What replaces a node is appended, and has its turn in the end.
    for node in graph:
        for body in bodies(node):
            inner_replaced, inner_waiting = _rewrite(body)
            replaced |= inner_replaced
            waiting += inner_waiting
        old = _adapter(node)
        entry = old or DECOMPOSITIONS.get(qualified_name(node))
        site = Site(tracer, node)
        if entry is None:
            _complete_types(node)
        elif not ((old and not old.typed) or _is_typed(node)):
            waiting.append(site)
        elif isinstance(entry, Decomposition) and (problem := entry.limits(site)) is not None:
            node.metadata_props[PROBLEM] = problem
            _complete_types(node)
        else:
            replace_node(tracer, node, _applied(entry.apply, site))
            replaced = True
    return replaced, waiting


def _applied(entry: Any, site: Site) -> Replacement:
    try:
        result: Replacement = entry(site)
    except TracingError as error:
        raise UnsupportedModelError(f"{site} cannot be said at opset {OPSET}: {error}") from error
    return result


def _adapter(node: ir.Node) -> Adapter | None:
    """The adapter for a node of the standard domain that was written for an older opset."""
    if node.domain or node.version is None:
        return None
    return next((entry for entry in ADAPTERS.get(node.op_type, ()) if node.version < entry.before), None)


def _is_typed(node: ir.Node) -> bool:
    """Whether element type and rank of every input are known."""
    return all(
        value is None or (isinstance(value.type, ir.TensorType) and value.shape is not None) for value in node.inputs
    )


def _complete_types(node: ir.Node) -> None:
    """Infer what the pass over the whole model could not, for instance behind a node of another domain."""
    known = all(value.type is not None and value.shape is not None for value in node.outputs)
    if known or node.domain or not _is_typed(node) or bodies(node):
        return
    try:
        inferred = infer(node, OPSET)
    except TracingError:
        return
    for value, (dtype, shape) in zip(node.outputs, inferred, strict=True):
        value.type = value.type or ir.TensorType(dtype)
        value.shape = value.shape or shape
