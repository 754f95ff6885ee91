"""An ONNX file, read and found to be whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import onnx
import onnx.defs
import onnx.numpy_helper
import onnx_ir as ir
from google.protobuf.message import DecodeError

from edgeopt.canonical.copies import copied
from edgeopt.errors import UnsupportedModelError
from edgeopt.tracing.subgraphs import all_nodes, bodies, operands

__all__ = ["OnnxModel", "of_bytes", "read"]

OnnxModel: TypeAlias = "onnx.ModelProto | ir.Model | str | os.PathLike[str]"

# What protobuf, numpy and onnx-ir raise at contents that contradict themselves.
_UNREADABLE = (DecodeError, OSError, ValueError, TypeError, AssertionError, ir.serde.SerdeError)
_LISTED = 4


def read(model: OnnxModel) -> ir.Model:
    """A model of its own, whose tensors can be read and whose nodes read what is there.

    Raises:
        UnsupportedModelError: It cannot be read, or contradicts itself.
    """
    name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else "The model"
    try:
        loaded = _loaded(model)
        loaded.graph.sort()
        problems = [*_unreadable_tensors(loaded.graph), *_impossible_nodes(loaded), *_missing(loaded.graph)]
    except _UNREADABLE as error:
        raise UnsupportedModelError(f"{name} cannot be read as an ONNX file: {_reason(error)}") from error
    if problems:
        listing = "".join(f"\n  - {problem}" for problem in problems[:_LISTED])
        raise UnsupportedModelError(f"{name} is no valid ONNX file:{listing}")
    return ir.external_data.load_to_model(loaded)


def of_bytes(content: bytes) -> onnx.ModelProto:
    """The model whose file has this content.

    Raises:
        UnsupportedModelError: It is no ONNX file.
    """
    try:
        return onnx.load_from_string(content)
    except DecodeError as error:
        raise UnsupportedModelError(f"The bytes given cannot be read as an ONNX file: {error}.") from error


def _loaded(model: OnnxModel) -> ir.Model:
    if isinstance(model, ir.Model):
        return copied(model)
    own = onnx.ModelProto()
    if isinstance(model, onnx.ModelProto):
        own.CopyFrom(model)
        if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in own.graph.initializer):
            raise ValueError("its weights are in another file: give the path of the model, or load them with onnx.load")
    else:
        own = onnx.load(model, load_external_data=False)
    _make_dense(own.graph)
    loaded = ir.serde.deserialize_model(own)
    if not isinstance(model, onnx.ModelProto):
        ir.external_data.set_base_dir(loaded.graph, os.path.dirname(os.path.abspath(model)))
    return loaded


def _make_dense(graph: onnx.GraphProto) -> None:
    """Sparse initializers written out."""
    for sparse in graph.sparse_initializer:
        values = onnx.numpy_helper.to_array(sparse.values)
        places = onnx.numpy_helper.to_array(sparse.indices)
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        dense[tuple(places.T) if places.ndim == 2 else np.unravel_index(places, dense.shape)] = values
        graph.initializer.append(onnx.numpy_helper.from_array(dense, sparse.values.name))
    del graph.sparse_initializer[:]


def _unreadable_tensors(graph: ir.Graph) -> Iterator[str]:
    for value in (*graph.initializers.values(), *(out for node in all_nodes(graph) for out in node.outputs)):
        tensor = value.const_value
        if tensor is None or tensor.dtype is ir.DataType.STRING:
            continue
        try:
            tensor.numpy()
        except _UNREADABLE as error:
            yield f"the tensor {value.name!r}: {_reason(error)}"


def _impossible_nodes(model: ir.Model) -> Iterator[str]:
    """Nodes of the standard domain that have not the inputs and attributes which their operator asks for."""
    for node in all_nodes(model.graph):
        imported = model.opset_imports.get("", model.opset_imports.get("ai.onnx"))
        version = imported if node.version is None else node.version
        if node.domain not in ("", "ai.onnx") or version is None:
            continue
        try:
            schema = onnx.defs.get_schema(node.op_type, min(version, onnx.defs.onnx_opset_version()))
        except onnx.defs.SchemaError:
            continue
        if not schema.min_input <= len(node.inputs) <= schema.max_input:
            yield f"{node.op_type} {node.name!r} has {len(node.inputs)} inputs"
            continue
        for position in range(schema.min_input):
            required = schema.inputs[min(position, len(schema.inputs) - 1)].option is not _OPTIONAL
            if required and node.inputs[position] is None:
                yield f"{node.op_type} {node.name!r} lacks input {position}"
        for name, attribute in schema.attributes.items():
            if attribute.required and name not in node.attributes:
                yield f"{node.op_type} {node.name!r} lacks the attribute {name!r}"


_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional


def _missing(graph: ir.Graph) -> Iterator[str]:
    """Tensors that are read or returned, and given by nothing."""
    if not graph.outputs:
        yield "it has no output"
    given = set(graph.inputs) | set(graph.initializers.values())
    for node in all_nodes(graph):
        given.update(node.outputs)
        for body in bodies(node):
            given.update(body.inputs, body.initializers.values())
    wanted = [*graph.outputs, *(value for node in graph for value in operands(node))]
    for value in dict.fromkeys(wanted):
        if value is not None and value not in given:
            yield f"nothing gives the tensor {value.name!r}"
        elif value is not None and not isinstance(value.name, str):
            yield f"a tensor has the name {value.name!r}"


def _reason(error: BaseException) -> str:
    cause = error
    while isinstance(cause, ir.serde.SerdeError) and cause.__cause__ is not None:
        cause = cause.__cause__
    return str(cause).strip().split("\n")[0] or type(cause).__name__
