"""A model in float64: the same graph, with every floating-point tensor in double precision."""

from __future__ import annotations

import onnx
import onnx.inliner
import onnx.numpy_helper
import onnx.shape_inference
import onnx.version_converter
import onnx_ir as ir

from edgeopt.tracing import OPSET

__all__ = ["in_double"]

_DOUBLE = onnx.TensorProto.DOUBLE
_FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
# Inputs whose type is float32 whatever the type of the data: scales of Resize, and its region of interest.
_ALWAYS_FLOAT32 = {"Resize": (1, 2)}


def in_double(model: onnx.ModelProto) -> ir.Model:
    """A float64 copy of a model at the target opset, its functions inlined and its shapes inferred."""
    copy = onnx.inliner.inline_local_functions(model)
    if any(opset.domain in ("", "ai.onnx") and opset.version != OPSET for opset in copy.opset_import):
        copy = onnx.version_converter.convert_version(copy, OPSET)
    graph = copy.graph
    kept = {
        node.input[position]
        for node in graph.node
        for position in _ALWAYS_FLOAT32.get(node.op_type, ())
        if position < len(node.input)
    }
    for value in [*graph.input, *graph.output]:
        if value.type.tensor_type.elem_type in _FLOATS and value.name not in kept:
            value.type.tensor_type.elem_type = _DOUBLE
    for tensor in graph.initializer:
        if tensor.name not in kept:
            _convert_tensor(tensor)
    for node in graph.node:
        if not any(output in kept for output in node.output):
            _convert_node(node)
    del graph.value_info[:]
    return ir.serde.deserialize_model(onnx.shape_inference.infer_shapes(copy, data_prop=True))


def _convert_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _FLOATS:
        array = onnx.numpy_helper.to_array(tensor).astype("float64")
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def _convert_node(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            _convert_tensor(attribute.t)
        elif attribute.name in ("to", "dtype") and attribute.i in _FLOATS:
            attribute.i = _DOUBLE
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            numbers = [attribute.f] if attribute.name == "value_float" else list(attribute.floats)
            shape = () if attribute.name == "value_float" else (len(numbers),)
            tensor = onnx.helper.make_tensor("value", _DOUBLE, shape, numbers)
            attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))
