"""A model in float64: the same graph, with every floating-point tensor in double precision."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

__all__ = ["always_float32", "to_double"]

_FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
# Inputs whose type is float32 whatever the type of the data: scales of Resize, and its region of interest.
_ALWAYS_FLOAT32 = {"Resize": (1, 2), "Upsample": (1,)}


def always_float32(graph: ir.Graph) -> set[ir.Value]:
    """The tensors that stay as they are, since their operator knows no other type."""
    return {
        value
        for node in ir.traversal.RecursiveGraphIterator(graph)
        for position in _ALWAYS_FLOAT32.get(node.op_type, ())
        if position < len(node.inputs) and (value := node.inputs[position]) is not None
    }


def to_double(graph: ir.Graph) -> None:
    """Give every floating-point tensor of a graph, and of the bodies in it, double precision, in place."""
    kept = always_float32(graph)
    _convert_values({*graph.inputs, *graph.initializers.values()} - kept)
    for node in ir.traversal.RecursiveGraphIterator(graph):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                body = attribute.as_graph()
                _convert_values({*body.inputs, *body.initializers.values()})
        if not kept.intersection(node.outputs):
            _convert_node(node)


def _convert_values(values: Iterable[ir.Value]) -> None:
    for value in values:
        if value.dtype in _FLOATS:
            value.dtype = ir.DataType.DOUBLE
        if value.const_value is not None and value.const_value.dtype in _FLOATS:
            value.const_value = _converted(value.const_value)


def _converted(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.tensor(tensor.numpy().astype(np.float64), name=tensor.name)


def _convert_node(node: ir.Node) -> None:
    if node.op_type == "ConstantOfShape" and "value" not in node.attributes:
        # By default its zeros are float32.
        node.attributes["value"] = ir.AttrTensor("value", ir.tensor(np.zeros(1)))
    for attribute in list(node.attributes.values()):
        changed: ir.Attr | None = None
        if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype in _FLOATS:
            changed = ir.AttrTensor(attribute.name, _converted(attribute.as_tensor()))
        elif attribute.name in ("to", "dtype", "output_datatype") and attribute.value in _FLOATS:
            changed = ir.AttrInt64(attribute.name, int(ir.DataType.DOUBLE))
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            node.attributes.pop(attribute.name)
            changed = ir.AttrTensor("value", ir.tensor(np.asarray(attribute.value, np.float64)))
        if changed is not None:
            node.attributes[changed.name] = changed
    _convert_values(node.outputs)
