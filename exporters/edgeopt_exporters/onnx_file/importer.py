"""From an ONNX file to the two forward graphs that a training step is made of."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common_passes
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # no stubs

from edgeopt.autodiff.registry import REFUSED
from edgeopt.canonical import convert, simplify
from edgeopt.canonical.copies import copied, deserialized
from edgeopt.canonical.inlining import inline_functions
from edgeopt.canonical.naming import fix_names
from edgeopt.errors import SignatureError, UnsupportedModelError
from edgeopt.tracing import Tracer
from edgeopt.tracing.site import qualified_name
from edgeopt.tracing.subgraphs import operands
from edgeopt.training.forward import ForwardGraph, ForwardModel
from edgeopt_exporters.onnx_file.batch import make_batch_symbolic
from edgeopt_exporters.onnx_file.examples import input_of, set_shapes
from edgeopt_exporters.onnx_file.modes import BatchNormMode, evaluation_mode, training_mode
from edgeopt_exporters.onnx_file.weights import Weights, lift_weights

__all__ = ["OnnxModel", "from_onnx"]

OnnxModel = onnx.ModelProto | ir.Model | str | os.PathLike[str]


def from_onnx(
    model: OnnxModel,
    example_inputs: Any = None,
    *,
    batch_norm: BatchNormMode = "file",
    dropout: bool = True,
    dynamic_batch: bool = True,
    dynamic_shapes: Mapping[str, Mapping[int, str]] | None = None,
    fixed_inputs: Mapping[str, Any] | None = None,
    output: str | None = None,
) -> ForwardModel:
    """Take a model from an ONNX file as it is, with its own names.

    Args:
        model: The model, or the path of its file.
        example_inputs: An array, several in the order of the inputs, or a mapping by name. Only their shapes are read:
            dimensions that the file leaves open, other than axis 0 and those of `dynamic_shapes`, get their sizes.
        batch_norm: What BatchNormalization does in training. `"file"`: what the file says, which for files made for
            inference is the same as `"frozen"`: normalise by the running statistics, and train scale and bias.
            `"train"`: normalise by the batch's statistics and move the running ones.
        dropout: Whether Dropout drops in training, as its ratio says.
        dynamic_batch: Whether axis 0 of the inputs becomes the symbolic dimension "batch" in a file that has no
            symbolic dimension at all, where its operators allow it. Without it, axis 0 is as in the examples, too.
        dynamic_shapes: More symbolic dimensions, by input and axis.
        fixed_inputs: Values of inputs that never change (a sampling rate); they are no inputs any more.
        output: A tensor inside the file to be returned besides its outputs: the logits in front of a Softmax, say.

    Raises:
        SignatureError: A name in `dynamic_shapes`, `fixed_inputs` or `output` is none of the file's.
        UnsupportedModelError: The file cannot be read, or holds nothing that can be trained.
    """
    loaded = _load(model)
    graph = loaded.graph
    inline_functions(loaded)
    common_passes.RemoveInitializersFromInputsPass()(loaded)
    fix_names(loaded)
    _fix_inputs(graph, fixed_inputs or {})
    set_shapes(graph, example_inputs, dynamic_batch=dynamic_batch, dynamic_shapes=dynamic_shapes or {})
    _add_output(graph, output)
    names = tuple(value.name or "" for value in graph.inputs)
    weights = lift_weights(graph)
    if not weights.parameters:
        raise UnsupportedModelError(_nothing_to_train(graph))
    convert(loaded)
    if dynamic_batch and not dynamic_shapes:
        loaded = make_batch_symbolic(loaded, names)
    train, evaluate = loaded, copied(loaded)
    updates = training_mode(train.graph, batch_norm, dropout=dropout)
    outputs = tuple(value.name or "" for value in train.graph.outputs)
    train.graph.outputs.extend(updates.values())
    evaluation_mode(evaluate.graph)
    simplify(train)
    simplify(evaluate)
    _drop_unused(weights, (train.graph, evaluate.graph), names)
    return ForwardModel(
        train=ForwardGraph(train, names, outputs, tuple(updates)),
        evaluate=ForwardGraph(evaluate, names, outputs),
        parameters=weights.parameters,
        buffers=weights.statistics,
        frozen=frozenset(weights.frozen),
        provenance=_provenance(loaded),
    )


def _load(model: OnnxModel) -> ir.Model:
    if isinstance(model, ir.Model):
        return copied(model)
    if isinstance(model, onnx.ModelProto):
        return deserialized(model)
    try:
        return ir.load(model)
    except (DecodeError, OSError, ValueError) as error:
        raise UnsupportedModelError(f"{os.fspath(model)} cannot be read as an ONNX file: {error}") from error


def _fix_inputs(graph: ir.Graph, values: Mapping[str, Any]) -> None:
    tracer = Tracer(graph)
    for name, constant in values.items():
        value = input_of(graph, name, "fixed_inputs")
        array = np.asarray(constant, None if value.dtype is None else value.dtype.numpy())
        value.replace_all_uses_with(tracer.constant(array).value)
        graph.inputs.remove(value)
    graph.sort()


def _add_output(graph: ir.Graph, name: str | None) -> None:
    """Make a tensor inside the graph an output."""
    outputs = [value.name for value in graph.outputs]
    if name is None or name in outputs:
        return
    found = next((value for node in graph for value in node.outputs if value.name == name), None)
    if found is None:
        raise SignatureError(f"The file has no tensor {name!r}; its outputs are {outputs}.")
    graph.outputs.append(found)


def _drop_unused(weights: Weights, graphs: Sequence[ir.Graph], inputs: Sequence[str]) -> None:
    """Forget weights that no graph reads: those of branches that are never taken."""
    # Not by Value.uses, which counts nodes of branches that are gone.
    readers = [(*graph.outputs, *(value for node in graph for value in operands(node))) for graph in graphs]
    used = {value.name or "" for values in readers for value in values if value is not None}
    for graph in graphs:
        graph.inputs[:] = [value for value in graph.inputs if value.name in inputs or value.name in used]
    for arrays in (weights.parameters, weights.statistics):
        for name in set(arrays) - used:
            del arrays[name]
    weights.frozen.intersection_update(used)


def _nothing_to_train(graph: ir.Graph) -> str:
    refused = {
        f"  - {name} (node {node.name!r}): {REFUSED[name]}"
        for node in ir.traversal.RecursiveGraphIterator(graph)
        if (name := qualified_name(node)) in REFUSED
    }
    why = "".join(f"\n{line}" for line in sorted(refused))
    return f"The file holds no floating-point weight that could be trained.{why}"


def _provenance(model: ir.Model) -> dict[str, str]:
    producer = " ".join(filter(None, (model.producer_name, model.producer_version)))
    return {"framework": f"onnx {producer}".strip(), "model": model.graph.name or ""}
