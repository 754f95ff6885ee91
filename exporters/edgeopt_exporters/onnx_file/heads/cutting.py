"""A file up to some of its tensors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import onnx
import onnx.shape_inference
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from edgeopt.canonical.inlining import inline_functions
from edgeopt.errors import SignatureError
from edgeopt.tracing.subgraphs import captured, remove_unused
from edgeopt_exporters.onnx_file.reading import OnnxModel, read

__all__ = ["cut", "find_tensors", "finish", "prepare"]


def cut(model: OnnxModel, at: str | Iterable[str]) -> onnx.ModelProto:
    """The model that ends at the tensors of these names: features, embeddings, the logits before a Softmax.

    What they do not need goes: nodes, weights, inputs.

    Args:
        model: An ONNX model or the path of its file, which stays as it is.
        at: The name of a tensor inside the model, or several; or names of nodes, whose first output is meant.

    Raises:
        UnsupportedModelError: The model cannot be read.
        SignatureError: There is no such tensor or node.
    """
    loaded = prepare(model)
    names = [at] if isinstance(at, str) else list(at)
    loaded.graph.outputs[:] = find_tensors(loaded.graph, names)
    return finish(loaded)


def prepare(model: OnnxModel) -> ir.Model:
    """A model of its own without functions, so that each of its tensors is one of the graph."""
    loaded = read(model)
    inline_functions(loaded)
    # Before IR 4 each initializer was an input too, which a device could overwrite.
    common_passes.RemoveInitializersFromInputsPass()(loaded)
    loaded.ir_version = max(loaded.ir_version, 4)
    return loaded


def find_tensors(graph: ir.Graph, names: Sequence[str]) -> list[ir.Value]:
    """The tensors, each given by its name or that of the node that makes it.

    Raises:
        SignatureError: There is no such tensor or node.
    """
    tensors = {value.name or "": value for node in graph for value in node.outputs}
    tensors |= {value.name or "": value for value in graph.inputs}
    nodes = {node.name: node.outputs[0] for node in graph if node.name}
    known = {**nodes, **tensors}
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, list(known), 3)
            hint = f"did you mean {', '.join(map(repr, close))}?" if close else f"it ends in {_ends(graph)}."
            raise SignatureError(f"The model has no tensor or node {name!r}; {hint}")
    return [known[name] for name in names]


def _describe(model: ir.Model) -> None:
    """Give outputs that are new as such their type and shape."""
    unknown = [value for value in model.graph.outputs if value.type is None or value.shape is None]
    if not unknown:
        return
    inferred = ir.serde.deserialize_model(onnx.shape_inference.infer_shapes(_without_outputs(model), data_prop=True))
    found = {value.name: value for node in inferred.graph for value in node.outputs}
    for value in unknown:
        value.type, value.shape = found[value.name].type, found[value.name].shape
        if value.type is None:
            raise SignatureError(f"The type of {value.name!r} cannot be inferred, so that the model cannot end there.")


def _without_outputs(model: ir.Model) -> onnx.ModelProto:
    proto: onnx.ModelProto = ir.serde.serialize_model(model)
    del proto.graph.output[:]
    return proto


def _ends(graph: ir.Graph) -> str:
    """The last tensors, for messages."""
    last = [value.name for node in list(graph)[-4:] for value in node.outputs if value.name]
    return ", ".join(map(repr, last))


def finish(model: ir.Model) -> onnx.ModelProto:
    """The serialized model without what its outputs do not need.

    Raises:
        SignatureError: What is left is no valid model.
    """
    graph = model.graph
    _describe(model)
    remove_unused(graph)
    read_inside = {value for node in graph for value in captured(node)}
    kept = {*graph.outputs, *read_inside}
    graph.inputs[:] = [value for value in graph.inputs if value.uses() or value in kept]
    for name in [name for name, value in graph.initializers.items() if not value.uses() and value not in kept]:
        del graph.initializers[name]
    proto: onnx.ModelProto = ir.serde.serialize_model(model)
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        raise SignatureError(
            f"What is left of the model is no valid one: {str(error).strip().splitlines()[0]}"
        ) from error
    return proto
