"""Nodes of newer opsets at the target opset: most versions only add types, and what uses them is refused."""

from __future__ import annotations

from collections.abc import Iterator

import onnx.defs
import onnx.helper
import onnx_ir as ir

from edgeopt.errors import UnsupportedModelError
from edgeopt.tracing import OPSET
from edgeopt.tracing.site import PROBLEM, qualified_name

__all__ = ["accept_at_target"]


def accept_at_target(graph: ir.Graph, version: int) -> None:
    """Check that every node means at the target opset what it meant at a newer one; attributes at their default go.

    Raises:
        UnsupportedModelError: Some do not; all of them are named.
    """
    problems = [
        f"  - {qualified_name(node)} {node.name!r}: {problem}"
        for node in ir.traversal.RecursiveGraphIterator(graph)
        if not node.domain and node.version is not None
        for problem in _problems(node, version)
    ]
    if problems:
        listing = "\n".join(problems)
        raise UnsupportedModelError(
            f"The model is written in opset {version}; at opset {OPSET} cannot be said:\n{listing}"
        )


def _problems(node: ir.Node, version: int) -> Iterator[str]:
    try:
        target = onnx.defs.get_schema(node.op_type, OPSET)
    except onnx.defs.SchemaError:
        problem = node.metadata_props.get(PROBLEM)
        yield "the operator is newer" + (f", and {problem}" if problem else "")
        return
    newer = onnx.defs.get_schema(node.op_type, min(version, onnx.defs.onnx_opset_version()))
    for name, attribute in list(node.attributes.items()):
        if name not in target.attributes:
            if name in newer.attributes and _is_default(attribute, newer.attributes[name]):
                node.attributes.pop(name)
            else:
                yield f"its attribute {name} is newer"
    if len(node.inputs) > target.max_input:
        yield f"it has more than {target.max_input} inputs"
        return
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in target.type_constraints}
    for position, value in enumerate(node.inputs):
        formal = target.inputs[min(position, len(target.inputs) - 1)]
        types = allowed.get(formal.type_str, [formal.type_str])
        if value is not None and value.dtype is not None and isinstance(value.type, ir.TensorType):
            own = f"tensor({value.dtype.name.lower()})"
            if own not in types:
                yield f"its input {value.name!r} is a {own}"


def _is_default(attribute: ir.Attr, schema: onnx.defs.OpSchema.Attribute) -> bool:
    default = schema.default_value
    return bool(default.name) and onnx.helper.get_attribute_value(default) == attribute.value
