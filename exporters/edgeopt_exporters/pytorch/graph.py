"""What torch's exporter leaves, turned into a forward graph: state as inputs, constants folded, traps removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir
import torch

from edgeopt.canonical import convert, simplify
from edgeopt.errors import UnsupportedModelError
from edgeopt.training.forward import ForwardGraph
from edgeopt_exporters.pytorch.checkpoints import mark_regions
from edgeopt_exporters.pytorch.inputs import Examples
from edgeopt_exporters.pytorch.module import PREFIX
from edgeopt_exporters.pytorch.node_names import name_after_modules
from edgeopt_exporters.pytorch.refusals import refuse_bfloat16
from edgeopt_exporters.pytorch.translations.stopped import mark_stopped
from edgeopt_exporters.pytorch.written import mark_written

__all__ = ["stateless", "to_forward_graph"]


def to_forward_graph(
    model: ir.Model, module: torch.nn.Module, examples: Examples, outputs: Sequence[str]
) -> ForwardGraph:
    """Name inputs and outputs, make parameters and buffers graph inputs, and simplify."""
    graph = model.graph
    name_after_modules(graph)
    _rename_symbols(graph, examples)
    for value, name in zip(graph.inputs, examples.names, strict=True):
        value.name = name
    _state_to_inputs(graph, module)
    convert(model)
    simplify(model)
    refuse_bfloat16(graph)
    mark_stopped(graph)
    mark_written(graph)
    mark_regions(graph)
    results = list(graph.outputs)
    predictions = dict(zip(outputs, results, strict=False))
    buffers = [name for name, _ in module.named_buffers()]
    parameters = [name for name, _ in module.named_parameters()]
    values = dict(zip([*buffers, *parameters], results[len(outputs) :], strict=True))
    updates = {name: value for name, value in values.items() if not _is_unchanged(value, name)}
    graph.outputs[:] = [*predictions.values(), *updates.values()]
    return ForwardGraph(
        model=model,
        inputs=examples.names,
        outputs=tuple(predictions),
        updated_buffers=tuple(name for name in buffers if name in updates),
        updated_parameters=tuple(name for name in parameters if name in updates),
    )


def stateless(graph: ForwardGraph) -> ForwardGraph:
    """A forward graph that keeps nothing of what it writes: evaluation has no way out for it."""
    graph.model.graph.outputs[:] = graph.model.graph.outputs[: len(graph.outputs)]
    return replace(graph, updated_buffers=(), updated_parameters=())


def _is_unchanged(value: ir.Value, name: str) -> bool:
    while (node := value.producer()) is not None and node.op_type == "Identity":
        value = node.inputs[0]  # type: ignore[assignment]  # Identity has its input
    return value.is_graph_input() and value.name == name


def _rename_symbols(graph: ir.Graph, examples: Examples) -> None:
    """torch numbers its symbols (`s10`); the user's names are better, and a number where torch found only one."""
    names: dict[str, str | int] = {}
    for value, tensor, own in zip(graph.inputs, examples.tensors, examples.dimensions, strict=True):
        for axis, dim in enumerate(value.shape or ()):
            if isinstance(dim, ir.SymbolicDim) and dim.value is not None:
                names[dim.value] = own.get(axis, tensor.shape[axis])
    values = [*graph.inputs, *(value for node in graph for value in node.outputs)]
    for value in values:
        if value.shape is not None:
            value.shape = ir.Shape(
                [dim if isinstance(dim, int) else names.get(dim.value or "", dim.value) for dim in value.shape]
            )


def _state_to_inputs(graph: ir.Graph, module: torch.nn.Module) -> None:
    """Initializers that are the module's own become inputs under the module's own names."""
    canonical: dict[str, str] = {}
    by_identity: dict[int, str] = {}
    for named in (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)):
        for name, tensor in named:
            canonical[PREFIX + name] = by_identity.setdefault(id(tensor), name)
    inputs: dict[str, ir.Value] = {}
    for exported, initializer in list(graph.initializers.items()):
        if exported not in canonical:
            continue
        name = canonical[exported]
        del graph.initializers[exported]
        if name in inputs:
            initializer.replace_all_uses_with(inputs[name])
            continue
        initializer.name, initializer.const_value = name, None
        inputs[name] = initializer
    taken = {value.name or "" for value in graph.inputs} & set(inputs)
    if taken:
        raise UnsupportedModelError(
            f"{sorted(taken)} are names of inputs and of parameters alike; rename the arguments of forward."
        )
    graph.inputs.extend(inputs.values())
