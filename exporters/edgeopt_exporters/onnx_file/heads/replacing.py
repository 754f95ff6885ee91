"""Another last layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx
import onnx.shape_inference
import onnx_ir as ir

from edgeopt.autodiff.reach import origins
from edgeopt.checks import require
from edgeopt.errors import SignatureError
from edgeopt.tracing.shapes import from_ir
from edgeopt_exporters.onnx_file.evaluating import evaluated
from edgeopt_exporters.onnx_file.heads.cutting import find_tensors, finish, prepare
from edgeopt_exporters.onnx_file.heads.finding import Head, find_head
from edgeopt_exporters.onnx_file.reading import OnnxModel
from edgeopt_exporters.onnx_file.roles import Flow

__all__ = ["replace_head"]


def replace_head(
    model: OnnxModel,
    classes: int,
    *,
    at: str | None = None,
    name: str = "head",
    output: str = "logits",
    bias: bool = True,
    seed: int = 0,
) -> onnx.ModelProto:
    """The model with a new last layer of so many classes, whose output is logits.

    The new layer is linear, `NAME.weight` of shape (classes, features) and `NAME.bias`, drawn as PyTorch draws those of
    `Linear`: uniform within ±1/√features. Features of an image, (batch, features, height, width), are averaged over
    positions first; those of a sequence, (batch, time, features), give logits at each position.

    Args:
        model: An ONNX model or the path of its file, which stays as it is.
        classes: How many logits there shall be.
        at: The tensor that the new layer reads, by its name or that of the node that makes it. None finds the last
            layer before the first output, behind which there are only activations, pools and changes of form, and
            takes what that layer reads.
        name: Prefix of the names of the new weights: `trainable="head.*"` trains the new layer alone.
        output: Name of the model's only output then.
        bias: Whether the layer has one.
        seed: Of the random numbers.

    Raises:
        UnsupportedModelError: The model cannot be read.
        SignatureError: There is no such tensor, or no last layer can be made out; the number of features is not known;
            or the names are taken.
        ConfigurationError: Fewer than one class.
    """
    require(isinstance(classes, int) and classes > 0, f"classes must be a whole number above 0, got {classes!r}")
    loaded = prepare(model)
    graph = loaded.graph
    found = _features(loaded, at)
    _refuse_taken(graph, {f"{name}.weight", f"{name}.bias", output}, found.value)
    bound, random = 1 / math.sqrt(found.size), np.random.default_rng(seed)
    shapes = {f"{name}.weight": (classes, found.size), **({f"{name}.bias": (classes,)} if bias else {})}
    weights = [
        _weight(graph, key, random.uniform(-bound, bound, size).astype(found.dtype)) for key, size in shapes.items()
    ]
    result = _layer(graph, found, weights, name)
    result.name, result.type = output, ir.TensorType(ir.DataType.from_numpy(found.dtype))
    result.shape = ir.Shape([*found.leading, classes])
    graph.outputs[:] = [result]
    return finish(loaded)


class _Features(NamedTuple):
    """What the new layer reads.

    Attributes:
        value: The tensor.
        size: How many features there are at a position.
        dtype: Of the features.
        leading: The dimensions of the new logits but the last.
        form: "flat", "images", or "positions" for any other number of dimensions.
    """

    value: ir.Value
    size: int
    dtype: np.dtype[np.generic]
    leading: Sequence[int | str | None]
    form: Literal["flat", "images", "positions"]


def _features(model: ir.Model, at: str | None) -> _Features:
    graph = model.graph
    if at is not None:
        (value,) = find_tensors(graph, [at])
        return _from_shape(model, value)
    head = find_head(graph)
    if head is None:
        raise SignatureError(
            f"No last layer can be made out before the output {graph.outputs[0].name!r}: not all behind it depends "
            "on it alone. Name the tensor that the new layer shall read: at=..."
        )
    return _from_weight(graph, head) or _from_shape(model, head.features)


def _from_weight(graph: ir.Graph, head: Head) -> _Features | None:
    """What the old layer says; many files leave the shapes between their nodes out."""
    operand, output = head.layer.inputs[1], graph.outputs[0]
    if head.layer.op_type == "Conv" or operand is None or Flow(graph).depends(operand):
        return None
    weight = evaluated(operand)
    rows, columns = weight.shape if weight.ndim == 2 else (0, 0)
    transposed = "transB" in head.layer.attributes and bool(head.layer.attributes["transB"].as_int())
    features, classes = (columns, rows) if transposed else (rows, columns)
    known = [value.shape for value in (head.features, *head.layer.outputs) if value.shape is not None]
    if output.shape is not None and len(output.shape) and output.shape[-1] == classes:
        known.append(output.shape)
    if not features or not known:
        return None
    form: Literal["flat", "positions"] = "flat" if head.layer.op_type == "Gemm" else "positions"
    return _Features(head.features, features, weight.dtype, from_ir(known[0])[:-1], form)


def _from_shape(model: ir.Model, value: ir.Value) -> _Features:
    """What the shape of a tensor says, inferred if the file does not say it."""
    if value.shape is None or value.dtype is None or any(dim is None for dim in from_ir(value.shape)):
        proto = onnx.shape_inference.infer_shapes(ir.serde.serialize_model(model), data_prop=True)
        (found,) = find_tensors(ir.serde.deserialize_model(proto).graph, [value.name or ""])
        value.shape, value.type = found.shape, found.type
    shape = None if value.shape is None else from_ir(value.shape)
    if shape is not None and value.dtype is not None and len(shape) in (2, 3, 4):
        features = shape[1] if len(shape) == 4 else shape[-1]
        if isinstance(features, int):
            leading = shape[:1] if len(shape) == 4 else shape[:-1]
            forms: dict[int, Literal["flat", "images", "positions"]] = {2: "flat", 4: "images"}
            return _Features(value, features, value.dtype.numpy(), leading, forms.get(len(shape), "positions"))
    said = "of unknown rank" if shape is None else f"of shape {list(shape)}"
    raise SignatureError(
        f"The new layer would read {value.name!r}, {said}; it needs (batch, features), (batch, time, features) or "
        "(batch, features, height, width) with a fixed number of features. Name another tensor by at=..."
    )


def _refuse_taken(graph: ir.Graph, names: set[str], features: ir.Value) -> None:
    """Names that the rest of the model has; what goes may leave its name behind."""
    taken = names & {value.name for value in origins(features, along_gradients=False)}
    if taken:
        raise SignatureError(f"The model has tensors called {sorted(taken)}; give the new layer other names.")
    for value in [value for node in graph for value in node.outputs if value.name in names]:
        value.name = f"{value.name}.old"
    for key, value in [(key, value) for key, value in graph.initializers.items() if key in names]:
        del graph.initializers[key]
        value.name = f"{value.name}.old"
        graph.register_initializer(value)


def _weight(graph: ir.Graph, name: str, array: np.ndarray[Any, Any]) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
    graph.register_initializer(value)
    return value


def _layer(graph: ir.Graph, found: _Features, weights: Sequence[ir.Value], name: str) -> ir.Value:
    """The new layer, in operators that every opset since 7 has in the same form."""

    def append(op_type: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        stem = f"{name}/{op_type}"
        node = ir.node(op_type, inputs, attributes, name=stem)
        node.outputs[0].name = f"{stem}_output"
        graph.append(node)
        return node.outputs[0]

    features = found.value
    if found.form == "images":
        features = append("Flatten", append("GlobalAveragePool", features), axis=1)
    if found.form != "positions" and len(weights) == 2:
        return append("Gemm", features, *weights, transB=1)
    product = append("MatMul", features, append("Transpose", weights[0], perm=[1, 0]))
    return append("Add", product, weights[1]) if len(weights) == 2 else product
