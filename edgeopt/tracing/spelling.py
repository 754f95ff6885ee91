"""One spelling for what is the same, so that equal nodes are found to be equal."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from edgeopt.tracing.subgraphs import all_nodes
from edgeopt.tracing.tracer import OPSET

__all__ = ["spell_alike"]

_CONSTANTS = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}

# onnx infers the shape of an STFT as if `onesided` were 0 by default.
_NOT_DROPPED = {"STFT"}


def spell_alike(graph: ir.Graph) -> None:
    """Remove, in place, attributes that have their operator's default, and give constants as tensors."""
    for node in all_nodes(graph):
        if node.domain:
            continue
        for name, attribute in list(node.attributes.items()):
            if node.op_type == "Constant" and name in _CONSTANTS:
                tensor = ir.tensor(np.asarray(attribute.value, _CONSTANTS[name]))
                del node.attributes[name]
                node.attributes["value"] = ir.AttrTensor("value", tensor)
            elif name in (defaults := _defaults(node.op_type)) and _value(attribute) == defaults[name]:
                del node.attributes[name]


@cache
def _defaults(op_type: str) -> dict[str, Any]:
    if op_type in _NOT_DROPPED or not onnx.defs.has(op_type, OPSET):
        return {}
    schema = onnx.defs.get_schema(op_type, OPSET, "")
    # The bodies that onnx has for some operators do not know what holds when an attribute is absent. Its stubs forget
    # both attributes.
    if schema.has_function or schema.has_context_dependent_function:  # type: ignore[attr-defined]  # see above
        return {}
    protos = {name: attribute.default_value for name, attribute in schema.attributes.items()}
    return {name: _value(ir.serde.deserialize_attribute(proto)) for name, proto in protos.items() if proto.name}


def _value(attribute: ir.Attr) -> Any:
    if attribute.type == ir.AttributeType.FLOAT:
        return np.float32(attribute.value)  # what a file holds
    return tuple(attribute.value) if isinstance(attribute.value, (list, tuple)) else attribute.value
