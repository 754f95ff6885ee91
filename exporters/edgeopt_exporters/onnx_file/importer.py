"""From an ONNX file to the two forward graphs that a training step is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from edgeopt.autodiff.registry import REFUSED
from edgeopt.canonical import convert, simplify
from edgeopt.canonical.copies import copied
from edgeopt.canonical.dimensions import name_dimensions
from edgeopt.canonical.inlining import inline_functions
from edgeopt.canonical.naming import fix_names
from edgeopt.errors import SignatureError, UnsupportedModelError
from edgeopt.losses import Loss
from edgeopt.tracing import Tracer
from edgeopt.tracing.shapes import from_ir
from edgeopt.tracing.site import qualified_name
from edgeopt.tracing.subgraphs import operands
from edgeopt.training.forward import ForwardGraph, ForwardModel
from edgeopt_exporters.given.dimensions import named_dimensions
from edgeopt_exporters.onnx_file.batch import make_batch_symbolic, number_of_examples
from edgeopt_exporters.onnx_file.examples import BATCH, by_name, input_of, set_shapes
from edgeopt_exporters.onnx_file.heads.finding import logits_before
from edgeopt_exporters.onnx_file.modes import BatchNormMode, evaluation_mode, training_mode
from edgeopt_exporters.onnx_file.proof import Proof
from edgeopt_exporters.onnx_file.reading import OnnxModel, read
from edgeopt_exporters.onnx_file.weights import Constant, Weights, decided, lift_weights
from edgeopt_runtime.manifest import Decision

__all__ = ["OnnxModel", "constants_of", "from_onnx"]


def from_onnx(
    model: OnnxModel,
    example_inputs: Any = None,
    *,
    batch_norm: BatchNormMode = "file",
    dropout: bool = True,
    dynamic_batch: bool = True,
    dynamic_shapes: Any = None,
    fixed_inputs: Mapping[str, Any] | None = None,
    output: str | None = None,
    loss: Loss | None = None,
    check: bool = True,
) -> ForwardModel:
    """Take a model from an ONNX file as it is, with its own names.

    Args:
        model: The model, or the path of its file.
        example_inputs: An array, several in the order of the inputs, or a mapping by name. Dimensions that the file
            leaves open, other than axis 0 and those of `dynamic_shapes`, get their sizes; their values are what the
            file and its graphs are run on.
        batch_norm: What BatchNormalization does in training. `"file"`: what the file says, which for files made for
            inference is the same as `"frozen"`: normalise by the running statistics, and train scale and bias.
            `"train"`: normalise by the batch's statistics and move the running ones.
        dropout: Whether Dropout drops in training, as its ratio says.
        dynamic_batch: Whether axis 0 of the inputs becomes the symbolic dimension "batch" in a file that has no
            symbolic dimension at all, where its operators allow it. Without it, axis 0 is as in the examples, too.
        dynamic_shapes: More symbolic dimensions, by input and axis, see `named_dimensions`.
        fixed_inputs: Values of inputs that never change (a sampling rate); they are no inputs any more.
        output: A tensor inside the file to be returned besides its outputs: the logits in front of a Softmax, say.
        loss: What will read it. Without `output`, one that reads logits gets those that a file makes its first output
            of by a Softmax or Sigmoid.
        check: Whether to run the file on ONNX Runtime beside the graph that was made of it. A dimension stays
            symbolic only if both give the same at a second size, too; without the check, every one that the file calls
            so, or whose shapes suggest it.

    Raises:
        SignatureError: A name in `dynamic_shapes`, `fixed_inputs` or `output` is none of the file's; or a dimension of
            `dynamic_shapes` turns out to have one size only.
        UnsupportedModelError: The file cannot be read, or holds nothing that can be trained.
        ExportDifferenceError: The graph gives other results than the file.
    """
    loaded = read(model)
    logits = None if output is not None or loss is None else logits_before(loaded.graph, loss)
    hidden = logits is not None and not logits.is_graph_output()
    output = output if logits is None else logits.name
    request = _Request(
        example_inputs=example_inputs,
        batch_norm=batch_norm,
        dropout=dropout,
        dynamic_batch=dynamic_batch,
        dynamic_shapes=_named(loaded.graph, dynamic_shapes, example_inputs, dynamic_batch),
        fixed_inputs=fixed_inputs or {},
        output=output,
    )
    if loaded.functions:
        # Refused here where that cannot be done: ONNX Runtime 1.17 crashes on functions that call themselves.
        inline_functions(copied(loaded))
    proof = Proof(model, loaded, output, request.dynamic_shapes) if check else None
    prepared = _prepared(loaded, request)
    if proof is not None:
        proof.start(prepared.graph, by_name(prepared.graph, example_inputs), prepared.fixed)
        proof.settle(prepared.graph)
    forward = _forward(prepared, request, proof)
    while proof is not None and proof.contradicted_by(forward):
        again = _prepared(read(model), request)
        proof.settle(again.graph)
        forward = _forward(again, request, proof)
    if logits is not None:
        forward = _reading(forward, logits.name or "", loss, hidden=hidden)
    return forward if proof is None else replace(forward, decisions=(*forward.decisions, *proof.decisions))


def _reading(forward: ForwardModel, logits: str, loss: Loss | None, *, hidden: bool) -> ForwardModel:
    """The same, whose loss reads logits, which predictions leave out if the file does."""
    first = forward.evaluate.outputs[0]
    text = (
        f"{type(loss).__name__} reads {logits!r}, the logits that the file makes its output {first!r} of; predictions "
        f"are {first!r} as before"
    )
    return replace(
        forward, scores=logits, hidden=hidden, decisions=(*forward.decisions, Decision("loss", logits, text))
    )


def _named(graph: ir.Graph, dynamic_shapes: Any, example_inputs: Any, dynamic_batch: bool) -> dict[str, dict[int, str]]:
    examples = by_name(graph, example_inputs)
    shapes = {
        value.name or "": np.shape(examples.get(value.name or "", ()))
        if value.shape is None
        else tuple(from_ir(value.shape))
        for value in graph.inputs
        if value.name not in graph.initializers
    }
    return named_dimensions(dynamic_shapes, shapes, dynamic_batch=dynamic_batch)


def constants_of(model: OnnxModel) -> list[Constant]:
    """The floating-point constants of a file in the order of the file, each with the role that it gets, and why.

    Raises:
        UnsupportedModelError: The file cannot be read.
    """
    loaded = read(model)
    inline_functions(loaded)
    common_passes.RemoveInitializersFromInputsPass()(loaded)
    fix_names(loaded)
    return lift_weights(loaded.graph).constants


@dataclass(frozen=True)
class _Request:
    """What the caller wants, as `from_onnx` has it."""

    example_inputs: Any
    batch_norm: BatchNormMode
    dropout: bool
    dynamic_batch: bool
    dynamic_shapes: Mapping[str, Mapping[int, str]]
    fixed_inputs: Mapping[str, Any]
    output: str | None


@dataclass(frozen=True)
class _Prepared:
    """A file whose inputs are settled; weights are still where it keeps them."""

    model: ir.Model
    fixed: Mapping[str, Any]

    @property
    def graph(self) -> ir.Graph:
        """Its graph."""
        return self.model.graph


def _prepared(loaded: ir.Model, request: _Request) -> _Prepared:
    graph = loaded.graph
    inline_functions(loaded)
    common_passes.RemoveInitializersFromInputsPass()(loaded)
    fix_names(loaded)
    fixed = _fix_inputs(graph, request.fixed_inputs)
    set_shapes(
        graph,
        request.example_inputs,
        dynamic_batch=request.dynamic_batch,
        dynamic_shapes=request.dynamic_shapes,
    )
    name_dimensions(graph)
    _add_output(graph, request.output)
    return _Prepared(loaded, fixed)


def _forward(prepared: _Prepared, request: _Request, proof: Proof | None) -> ForwardModel:
    loaded, graph = prepared.model, prepared.graph
    names = tuple(value.name or "" for value in graph.inputs)
    weights = lift_weights(graph)
    if not weights.parameters:
        raise UnsupportedModelError(_nothing_to_train(graph))
    convert(loaded)
    forward = replace(_finished(loaded, names, weights, request), decisions=decided(weights.constants))
    shapes = [value.shape for value in graph.inputs if value.name in names and value.shape]
    if not request.dynamic_batch or request.dynamic_shapes or any(not isinstance(shape[0], int) for shape in shapes):
        return forward
    return _with_batch(forward, proof)


def _with_batch(forward: ForwardModel, proof: Proof | None) -> ForwardModel:
    """The same for any number of examples, where nothing in it ties them to theirs."""
    names = forward.evaluate.inputs
    count = number_of_examples(forward.evaluate.model, names)
    why = count if isinstance(count, str) else None
    if isinstance(count, int):
        train, evaluate = (make_batch_symbolic(mode.model, names, count) for mode in (forward.train, forward.evaluate))
        why = evaluate if isinstance(evaluate, str) else train if isinstance(train, str) else None
        if isinstance(train, ir.Model) and isinstance(evaluate, ir.Model):
            candidate = replace(
                forward,
                train=replace(forward.train, model=train),
                evaluate=replace(forward.evaluate, model=evaluate),
            )
            why = None if proof is None else proof.batch_problem(count, candidate, forward)
            if why is None:
                proven = "" if proof is None else f": of {count + 1} together, each gives what it gives in the file"
                text = f"{BATCH} is symbolic, where the file has {count}{proven}"
                return replace(candidate, decisions=(*forward.decisions, Decision("symbolic", BATCH, text)))
    size = f"fixed at {count}" if isinstance(count, int) else "as in the file"
    decision = Decision("fixed", BATCH, f"the number of examples is {size}: {why}")
    return replace(forward, decisions=(*forward.decisions, decision))


def _finished(loaded: ir.Model, names: tuple[str, ...], weights: Weights, request: _Request) -> ForwardModel:
    """The two modes of a model in canonical form but for the folding."""
    train, evaluate = loaded, copied(loaded)
    updates = training_mode(train.graph, request.batch_norm, dropout=request.dropout)
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


def _fix_inputs(graph: ir.Graph, values: Mapping[str, Any]) -> dict[str, Any]:
    """Make inputs constants; their values in the type of the input."""
    tracer, arrays = Tracer(graph), {}
    for name, constant in values.items():
        value = input_of(graph, name, "fixed_inputs")
        array = np.asarray(constant, None if value.dtype is None else value.dtype.numpy())
        value.replace_all_uses_with(tracer.constant(array).value)
        graph.inputs.remove(value)
        arrays[name] = array
    graph.sort()
    return arrays


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
