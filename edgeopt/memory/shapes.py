"""Type and size of every tensor of a graph whose inputs have known sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import defs, helper, numpy_helper, shape_inference

__all__ = ["Inferred", "OpenShape", "Shape", "body_inputs", "infer", "inner_graphs", "open_shapes"]

Shape = tuple[int, ...]

#: Of a tensor before sizes are given: a number, the name of a symbolic dimension, or nothing.
OpenShape = tuple[int | str, ...]

# Shapes and what is computed from them; anything larger is data. A Split may list the parts of many parameters.
_SMALL, _LONGEST = 64, 4096
_STANDARD = ("", "ai.onnx")


@dataclass(frozen=True)
class Inferred:
    """A tensor's element type, as ONNX numbers it, and its shape."""

    elem_type: int
    shape: Shape

    @property
    def nbytes(self) -> int:
        """Size of the data."""
        return math.prod(self.shape) * helper.tensor_dtype_to_np_dtype(self.elem_type).itemsize

    @property
    def proto(self) -> onnx.TypeProto:
        """As ONNX's own shape inference takes it."""
        return helper.make_tensor_type_proto(self.elem_type, self.shape)


def infer(
    graph: onnx.GraphProto, opset: int, given: Mapping[str, Inferred], values: Mapping[str, NDArray[Any]] | None = None
) -> dict[str, Inferred]:
    """Every tensor that can be known.

    ONNX's own inference node by node, with the small integers that shapes are computed from; and the operators into
    which ONNX Runtime fuses others.

    Args:
        graph: Nodes in topological order.
        opset: Version of the standard operators.
        given: Type and shape of the inputs, and of what bodies read from outside.
        values: Integers that are known from outside.
    """
    found = dict(given)
    known = dict(values or {})
    for tensor in graph.initializer:
        found[tensor.name] = Inferred(tensor.data_type, tuple(tensor.dims))
        if math.prod(tensor.dims) <= _LONGEST:
            known[tensor.name] = numpy_helper.to_array(tensor)
    for node in graph.node:
        results = _outputs(node, opset, found, known)
        found.update({name: result for name, result in results.items() if name})
        if all(name in known for name in node.input if name) or node.op_type in ("Shape", "Size"):
            known.update(_computed(node, opset, found, known))
        elif node.op_type == "Mul" and (zero := _zero(node, found, known)) is not None:
            known[node.output[0]] = zero
    return found


def open_shapes(model: onnx.ModelProto) -> dict[str, OpenShape]:
    """The shapes of tensors as far as ONNX's inference knows them while symbolic dimensions are open."""
    graph = shape_inference.infer_shapes(model).graph
    return {
        value.name: tuple(_open(dim) for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info, *graph.output)
        if value.type.tensor_type.HasField("shape")
    }


def _open(dim: onnx.TensorShapeProto.Dimension) -> int | str:
    # The inference gives names of this form to what it knows nothing of.
    return dim.dim_value if dim.HasField("dim_value") else "" if dim.dim_param.startswith("unk__") else dim.dim_param


def _outputs(
    node: onnx.NodeProto, opset: int, found: Mapping[str, Inferred], known: Mapping[str, NDArray[Any]]
) -> dict[str, Inferred]:
    if node.domain not in _STANDARD:
        rule = _FUSED.get(node.op_type)
        inputs = [found.get(name) for name in node.input]
        shape = None if rule is None or inputs[0] is None else rule(node, [one for one in inputs if one is not None])
        first = inputs[0]
        return {} if shape is None or first is None else {node.output[0]: Inferred(first.elem_type, shape)}
    if node.op_type in ("If", "Loop", "Scan"):
        return _of_bodies(node, opset, found, known)
    if any(name and name not in found for name in node.input):
        return {}
    types = {name: found[name].proto for name in node.input if name}
    data = {
        name: numpy_helper.from_array(np.asarray(known[name]), name) for name in node.input if name and name in known
    }
    try:
        schema = defs.get_schema(node.op_type, opset, "")
        inferred = shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=[helper.make_opsetid("", opset)], ir_version=9
        )
    except (RuntimeError, ValueError, TypeError, onnx.defs.SchemaError):
        return {}
    return {name: one for name, proto in inferred.items() if (one := _known(proto)) is not None}


def _known(proto: onnx.TypeProto) -> Inferred | None:
    tensor = proto.tensor_type
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    return Inferred(tensor.elem_type, tuple(dim.dim_value for dim in tensor.shape.dim))


def _of_bodies(
    node: onnx.NodeProto, opset: int, found: Mapping[str, Inferred], known: Mapping[str, NDArray[Any]]
) -> dict[str, Inferred]:
    """What operators with bodies return: what the body does, and over all turns what it returns in each."""
    body = inner_graphs(node)[0]
    inside = infer(body, opset, {**found, **body_inputs(node, found)}, known)
    results = [inside.get(output.name) for output in body.output]
    if node.op_type == "If":
        pairs = list(zip(node.output, results, strict=True))
    else:
        first = _attribute(node, "num_scan_inputs", 0)
        states = len(node.input) - first if node.op_type == "Scan" else len(node.input) - 2
        results = results if node.op_type == "Scan" else results[1:]
        turns = _turns(node, found, known)
        stacked = [
            None if one is None or turns is None else Inferred(one.elem_type, (turns, *one.shape))
            for one in results[states:]
        ]
        pairs = list(zip(node.output, [*results[:states], *stacked], strict=True))
    return {name: one for name, one in pairs if name and one is not None}


def inner_graphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The bodies of a node."""
    kinds = onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS
    return [
        body
        for attribute in node.attribute
        if attribute.type in kinds
        for body in ([attribute.g] if attribute.type == kinds[0] else attribute.graphs)
    ]


def body_inputs(node: onnx.NodeProto, found: Mapping[str, Inferred]) -> dict[str, Inferred]:
    """What each turn of a Loop or Scan gets."""
    if node.op_type == "If":
        return {}
    body = inner_graphs(node)[0]
    sources = [found.get(name) for name in node.input]
    if node.op_type == "Scan":
        states = len(node.input) - _attribute(node, "num_scan_inputs", 0)
        scanned = [None if one is None else Inferred(one.elem_type, one.shape[1:]) for one in sources[states:]]
        sources = [*sources[:states], *scanned]
    else:
        whole = Inferred(onnx.TensorProto.INT64, ())
        sources = [whole, Inferred(onnx.TensorProto.BOOL, ()), *sources[2:]]
    return {port.name: one for port, one in zip(body.input, sources, strict=True) if one is not None}


def _turns(node: onnx.NodeProto, found: Mapping[str, Inferred], known: Mapping[str, NDArray[Any]]) -> int | None:
    if node.op_type == "Scan":
        source = found.get(node.input[-1])
        return None if source is None else source.shape[0]
    count = known.get(node.input[0])
    return None if count is None else int(count)


def _computed(
    node: onnx.NodeProto, opset: int, found: Mapping[str, Inferred], known: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The values of a node that computes with sizes."""
    source = found.get(node.input[0]) if node.input else None
    if node.op_type == "Shape" and source is not None:
        attributes = {attribute.name: attribute.i for attribute in node.attribute}
        part = source.shape[attributes.get("start", 0) : attributes.get("end")]
        return {node.output[0]: np.asarray(part, np.int64)}
    if node.op_type == "Size" and source is not None:
        return {node.output[0]: np.asarray(math.prod(source.shape), np.int64)}
    outputs = [found.get(name) for name in node.output]
    if node.op_type == "Constant" or any(
        one is None or math.prod(one.shape) > _SMALL or not np.issubdtype(_numpy(one), np.integer) for one in outputs
    ):
        return {}
    return _run(node, opset, {name: known[name] for name in node.input if name})


def _zero(
    node: onnx.NodeProto, found: Mapping[str, Inferred], known: Mapping[str, NDArray[Any]]
) -> NDArray[Any] | None:
    """Zeros, where whole numbers are multiplied by 0: that is how one tensor waits for others."""
    result = found.get(node.output[0])
    if result is None or math.prod(result.shape) > _SMALL or not np.issubdtype(_numpy(result), np.integer):
        return None
    if any(name in known and not np.any(known[name]) for name in node.input):
        return np.zeros(result.shape, _numpy(result))
    return None


def _numpy(one: Inferred) -> np.dtype[Any]:
    return helper.tensor_dtype_to_np_dtype(one.elem_type)


def _run(node: onnx.NodeProto, opset: int, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    from onnx.reference import ReferenceEvaluator

    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "one", ports, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    try:
        return dict(zip(node.output, ReferenceEvaluator(model).run(None, dict(inputs)), strict=True))
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
        return {}


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    return next((helper.get_attribute_value(one) for one in node.attribute if one.name == name), default)


def _same(node: onnx.NodeProto, inputs: Sequence[Inferred]) -> Shape | None:
    return inputs[0].shape


def _product(node: onnx.NodeProto, inputs: Sequence[Inferred]) -> Shape | None:
    if len(inputs) < 2:
        return None
    sides = []
    for one, side in zip(inputs, "AB", strict=False):
        shape = list(one.shape)
        if _attribute(node, f"transBatch{side}", 0):
            shape = [*shape[1:-1], shape[0], shape[-1]]
        if _attribute(node, f"trans{side}", 0) and len(shape) > 1:
            shape[-2:] = shape[:-3:-1]
        sides.append(shape)
    left, right = sides
    if min(len(left), len(right)) < 2:
        return (*left[:-1], *right[:-2], *right[-1:]) if len(right) > 1 else tuple(left[:-1])
    return (*np.broadcast_shapes(tuple(left[:-2]), tuple(right[:-2])), left[-2], right[-1])


def _convolution(node: onnx.NodeProto, inputs: Sequence[Inferred]) -> Shape | None:
    weight = _attribute(node, "kernel_shape", None) or list(inputs[1].shape[2:])
    return (inputs[0].shape[0], inputs[1].shape[0], *_windows(node, inputs[0].shape[2:], weight))


def _pooling(node: onnx.NodeProto, inputs: Sequence[Inferred]) -> Shape | None:
    kernel = _attribute(node, "kernel_shape", None)
    if kernel is None:  # a global one
        return (*inputs[0].shape[:2], *(1 for _ in inputs[0].shape[2:]))
    return (*inputs[0].shape[:2], *_windows(node, inputs[0].shape[2:], kernel))


def _windows(node: onnx.NodeProto, sizes: Sequence[int], kernel: Sequence[int]) -> list[int]:
    rank = len(sizes)
    pads = _attribute(node, "pads", [0] * (2 * rank))
    strides, dilations = _attribute(node, "strides", [1] * rank), _attribute(node, "dilations", [1] * rank)
    ceil = _attribute(node, "ceil_mode", 0)
    lengths = [
        size + pads[axis] + pads[axis + rank] - dilations[axis] * (kernel[axis] - 1) - 1
        for axis, size in enumerate(sizes)
    ]
    return [(-(-length // step) if ceil else length // step) + 1 for length, step in zip(lengths, strides, strict=True)]


def _reorder_output(node: onnx.NodeProto, inputs: Sequence[Inferred]) -> Shape | None:
    shape = list(inputs[0].shape)
    channels = _attribute(node, "channels", shape[1])
    if _attribute(node, "channels_last", 0):
        return (shape[0], *shape[2:], channels)
    return (shape[0], channels, *shape[2:])


#: What ONNX Runtime makes of several operators, and its own layouts.
_FUSED: dict[str, Callable[[onnx.NodeProto, Sequence[Inferred]], Shape | None]] = {
    "FusedMatMul": _product,
    "TransposeMatMul": _product,
    "FusedGemm": _product,
    "FusedConv": _convolution,
    "Conv": _convolution,
    "MaxPool": _pooling,
    "AveragePool": _pooling,
    "GlobalMaxPool": _pooling,
    "GlobalAveragePool": _pooling,
    "ReorderOutput": _reorder_output,
    **dict.fromkeys(
        ("ReorderInput", "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "BiasSoftmax", "SkipLayerNormalization"), _same
    ),
    **dict.fromkeys(("BiasDropout", "Inverse", "Upsample", "SimplifiedLayerNormalization", "BiasAdd"), _same),
}
