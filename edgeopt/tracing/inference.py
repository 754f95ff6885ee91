"""Types and shapes of what a node computes.

ONNX's own inference does the work; elementwise operators are done here, because they are most of a graph and their
symbolic dimensions deserve to survive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import onnx.defs
import onnx.helper
import onnx.shape_inference
import onnx_ir as ir

from edgeopt.errors import TracingError
from edgeopt.tracing import shapes
from edgeopt.tracing.subgraphs import infer_control_flow

__all__ = ["infer"]

_SAME_TYPE = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor"})
# onnx knows the body of this one, and no shape.
_SAME_TYPE |= {"MeanVarianceNormalization"}
_TO_BOOL = frozenset({"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
_POOLING = frozenset({"AveragePool", "LpPool", "MaxPool"})
# Larger constants never hold a shape, and copying them into a proto for each node would be slow.
_MAX_INFERENCE_DATA = 64


def infer(node: ir.Node, opset: int) -> list[tuple[ir.DataType, ir.Shape | None]]:
    """Type and shape of each output of a node of the standard domain.

    Raises:
        TracingError: The node does not fit its operator's definition.
    """
    if node.op_type in _SAME_TYPE or node.op_type in _TO_BOOL or node.op_type == "Where":
        known = _elementwise(node)
        if known is not None:
            return [known]
    if node.op_type == "STFT":
        return [_spectrum(node)]
    return infer_control_flow(node) or _by_onnx(node, opset)


def _elementwise(node: ir.Node) -> tuple[ir.DataType, ir.Shape] | None:
    operands = [value for value in node.inputs if value is not None]
    operand_shapes = [value.shape for value in operands]
    dtype = ir.DataType.BOOL if node.op_type in _TO_BOOL else operands[-1 if node.op_type == "Where" else 0].dtype
    if dtype is None or any(shape is None for shape in operand_shapes):
        return None
    broadcast = shapes.broadcast(*(shapes.from_ir(shape) for shape in operand_shapes if shape is not None))
    return dtype, shapes.to_ir(broadcast)


def _spectrum(node: ir.Node) -> tuple[ir.DataType, ir.Shape]:
    """(batch, frames, frequencies, 2); onnx's own inference takes `onesided` for 0 by default, and needs a length."""
    signal, step, window, length = [*node.inputs, None, None][:4]
    if signal is None or signal.dtype is None:
        raise TracingError("The type of STFT's signal is not known.")
    batch, size, _ = shapes.from_ir(signal.shape) if signal.shape is not None else (None, None, None)
    given = [None if value is None else ir.convenience.get_const_tensor(value) for value in (step, length)]
    stride, frame = (None if tensor is None else int(tensor.numpy().reshape(())) for tensor in given)
    if length is None:
        frame_dim = size if window is None else None if window.shape is None else shapes.from_ir(window.shape)[0]
        frame = frame_dim if isinstance(frame_dim, int) else None
    frames = (size - frame) // stride + 1 if isinstance(size, int) and frame is not None and stride else None
    bins = frame if frame is None or not node.attributes.get_int("onesided", 1) else frame // 2 + 1
    return signal.dtype, shapes.to_ir((batch, frames, bins, 2))


def _type_proto(value: ir.Value) -> onnx.TypeProto:
    if value.dtype is None:
        raise TracingError(f"The type of tensor {value.name!r} is not known.")
    shape: Sequence[Any] | None = None if value.shape is None else shapes.from_ir(value.shape)
    return onnx.helper.make_tensor_type_proto(int(value.dtype), shape)


def _by_onnx(node: ir.Node, opset: int) -> list[tuple[ir.DataType, ir.Shape | None]]:
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError as error:
        raise TracingError(f"Opset {opset} has no operator {node.op_type}.") from error
    names = ["" if value is None else f"i{position}" for position, value in enumerate(node.inputs)]
    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain, input=names)
    proto.output.extend(f"o{position}" for position in range(len(node.outputs)))
    proto.attribute.extend(ir.serde.serialize_attribute(attribute) for attribute in node.attributes.values())
    types, data = {}, {}
    for name, value in zip(names, node.inputs, strict=True):
        if value is None:
            continue
        types[name] = _type_proto(value)
        constant = ir.convenience.get_const_tensor(value)
        # The sizes of a Split are as many as its outputs, however many those are.
        longest = len(node.outputs) if node.op_type == "Split" else 0
        if constant is not None and constant.size <= max(_MAX_INFERENCE_DATA, longest):
            data[name] = ir.serde.serialize_tensor(constant)
    try:
        inferred = onnx.shape_inference.infer_node_outputs(
            schema, proto, types, data, opset_imports=[onnx.helper.make_opsetid("", opset)]
        )
    except Exception as error:  # onnx raises its own C++ exception types, which have no common importable base
        operands = ", ".join(f"{value.name}: {value.dtype} {value.shape}" for value in node.inputs if value is not None)
        raise TracingError(f"{node.op_type} does not accept ({operands}): {error}") from error
    result = []
    for position in range(len(node.outputs)):
        tensor = inferred[f"o{position}"].tensor_type if f"o{position}" in inferred else onnx.TypeProto.Tensor()
        if not tensor.elem_type:
            raise TracingError(f"The type of output {position} of {node.op_type} cannot be inferred.")
        shape = None
        if tensor.HasField("shape"):
            shape = ir.Shape(
                [d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in tensor.shape.dim]
            )
            if node.op_type in _POOLING:
                shape = _without_late_windows(node, shape)
        result.append((ir.DataType(tensor.elem_type), shape))
    return result


def _without_late_windows(node: ir.Node, shape: ir.Shape) -> ir.Shape:
    """With `ceil_mode`, windows that would begin in the padding behind do not count.

    So do the ONNX specification and ONNX Runtime since 1.18; onnx's own inference has counted them at times.
    """
    x = node.inputs[0]
    if x is None or x.shape is None or not node.attributes.get_int("ceil_mode", 0):
        return shape
    if node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return shape
    rank = len(shape) - 2
    strides = node.attributes.get_ints("strides", (1,) * rank)
    begin = node.attributes.get_ints("pads", (0,) * rank)[:rank]
    dims = list(shapes.from_ir(shape))
    for axis, (size, stride, padding) in enumerate(zip(shapes.from_ir(x.shape)[2:], strides, begin, strict=True)):
        count = dims[2 + axis]
        if isinstance(size, int) and isinstance(count, int):
            dims[2 + axis] = min(count, (size + padding - 1) // stride + 1)
    return shapes.to_ir(dims)
