"""Adapters put into a model: one forward model in, another one out."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.adapters.base import Adapter, LayerAdapter, NumpyArray, Selection
from edgeopt.adapters.layers import Kind, Layer, Use, find_layers, uses_of
from edgeopt.adapters.place import Place, reordered
from edgeopt.adapters.weights import weight_in, weight_of
from edgeopt.canonical.copies import copied
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.optimizers import Group
from edgeopt.tracing import Array, Tracer, new_graph, new_model
from edgeopt.tracing.shapes import Shape
from edgeopt.training.examining.decisions import decided, listed
from edgeopt.training.forward import ForwardGraph, ForwardModel, Merging
from edgeopt.training.graphs.simplify import remove_unused
from edgeopt_runtime.manifest import AdapterSpec, AdapterTensor, Decision

__all__ = ["PREFIX", "Adapted", "adapt"]

#: What PEFT's files have in front of every name.
PREFIX = "base_model.model."
MERGED = "merged."


@dataclass(frozen=True)
class Adapted:
    """A model with its adapters.

    Attributes:
        model: The forward computation, with their parameters and branches.
        trained: Names of the parameters that train.
        groups: What the adapters ask of the optimizer, for some of these.
    """

    model: ForwardModel
    trained: tuple[str, ...]
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class _Beside:
    """An adapter beside one layer, and its parameters: their full names by what the adapter calls them."""

    adapter: LayerAdapter
    layer: Layer
    names: Mapping[str, str]


def adapt(model: ForwardModel, adapters: Sequence[Adapter], also: Collection[str] = (), seed: int = 0) -> Adapted:
    """Put adapters into a model; at their first values it computes what it did.

    Args:
        model: The model, which stays as it is.
        adapters: In any order; a layer takes one of them.
        also: Names of parameters that train as a whole besides, a new head say. No adapter goes beside these.
        seed: Where random first values come from, together with the names of the parameters.

    Raises:
        ParameterPatternError: A pattern matches nothing, or nothing suitable.
        ConfigurationError: Two adapters are for one layer.
        SignatureError: The model has a tensor of a new parameter's name already.
    """
    layers = [layer for layer in find_layers(model) if layer.weight not in also]
    besides: list[_Beside] = []
    parameters: dict[str, NumpyArray] = {}
    specs: list[AdapterSpec] = []
    selected: list[str] = list(also)
    groups: list[Group] = []
    decisions: list[Decision] = []
    for adapter in adapters:
        if isinstance(adapter, Selection):
            names = adapter.select(model)
            specs.append(_spec(adapter, (), [AdapterTensor(f"{PREFIX}{name}", name) for name in names], specs))
            selected += [name for name in names if name not in selected]
            continue
        if not isinstance(adapter, LayerAdapter):
            raise ConfigurationError(f"{type(adapter).__name__} is neither a LayerAdapter nor a Selection.")
        chosen = adapter.choose(layers)
        adapter = adapter.settled(chosen, {each.weight: weight_of(model, each) for each in chosen})
        chosen = adapter.choose(layers)
        own = [_beside(adapter, layer, model, besides, parameters, seed) for layer in chosen]
        tensors = [
            AdapterTensor(f"{PREFIX}{name}", name, each.layer.weight) for each in own for name in each.names.values()
        ]
        groups += adapter.groups([tensor.tensor for tensor in tensors])
        specs.append(_spec(adapter, chosen, tensors, specs))
        decisions += _decided(adapter, chosen)
    specs = _with_others(specs, also)
    trained = tuple(dict.fromkeys((*parameters, *selected)))
    if not besides:
        return Adapted(replace(model, adapters=tuple(specs)), trained, tuple(groups))
    rewritten = replace(
        model,
        train=_rewritten(model.train, model, besides, parameters, training=True),
        evaluate=_rewritten(model.evaluate, model, besides, parameters, training=False),
        parameters={**model.parameters, **parameters},
        adapters=tuple(specs),
        merging=_merging(model, besides, parameters),
        decisions=(*model.decisions, *decisions),
    )
    return Adapted(rewritten, trained, tuple(groups))


def _beside(
    adapter: LayerAdapter,
    layer: Layer,
    model: ForwardModel,
    others: list[_Beside],
    parameters: dict[str, NumpyArray],
    seed: int,
) -> _Beside:
    for other in others:
        if (other.layer.weight, other.layer.kind) == (layer.weight, layer.kind):
            raise ConfigurationError(
                f"{type(other.adapter).__name__} and {type(adapter).__name__} are both for {layer.module!r}; a layer "
                "takes one adapter. Give each its targets."
            )
    weight = weight_of(model, layer)
    random = np.random.default_rng((seed, zlib.crc32(layer.module.encode())))
    values = adapter.parameters(layer, weight, random)
    names = {key: f"{layer.module}.{key}" for key in values}
    for key, value in values.items():
        if names[key] in model.parameters or names[key] in model.buffers or names[key] in parameters:
            raise SignatureError(f"The model has a tensor {names[key]!r} already; rename that part of it.")
        parameters[names[key]] = value
    found = _Beside(adapter, layer, names)
    others.append(found)
    return found


def _decided(adapter: LayerAdapter, layers: Sequence[Layer]) -> list[Decision]:
    """Which layers were meant, where nobody said so."""
    if adapter.targets is not None:
        return []
    names = [layer.module for layer in layers]
    text = f"{type(adapter).__name__} is beside {len(names)} layers, since targets names none: {listed(names)}"
    return [decided("adapter", names, text)]


def _spec(
    adapter: Adapter, layers: Sequence[Layer], tensors: Sequence[AdapterTensor], others: Sequence[AdapterSpec]
) -> AdapterSpec:
    count = sum(spec.kind == adapter.kind for spec in others)
    name = f"{adapter.kind}_{count + 1}" if count else adapter.kind
    return AdapterSpec(name, adapter.kind, adapter.config(layers), tuple(tensors))


def _with_others(specs: Sequence[AdapterSpec], also: Iterable[str]) -> list[AdapterSpec]:
    """The first adapter's files hold whatever else trains, as PEFT's `modules_to_save`."""
    names = [name for name in also if all(name != each.tensor for spec in specs for each in spec.tensors)]
    if not names or not specs:
        return list(specs)
    first, modules = specs[0], sorted({name.rpartition(".")[0] or name for name in names})
    tensors = (*first.tensors, *(AdapterTensor(f"{PREFIX}{name}", name) for name in names))
    config = {**first.config, "modules_to_save": modules}
    return [replace(first, config=config, tensors=tensors), *specs[1:]]


def _rewritten(
    graph: ForwardGraph,
    model: ForwardModel,
    besides: Sequence[_Beside],
    parameters: Mapping[str, NumpyArray],
    *,
    training: bool,
) -> ForwardGraph:
    """The graph with the new parameters as inputs and the adapters' branches."""
    copy = copied(graph.model)
    tracer = Tracer(copy.graph)
    inputs = _inputs(tracer, parameters)
    for each, use in _pairs(copy.graph, model, besides):
        own = {key: inputs[name] for key, name in each.names.items()}
        result, before = use.result, list(use.result.uses())
        with tracer.scope(f"{each.layer.module}/{each.adapter.kind}"):
            changed = each.adapter.forward(xp, Place(tracer, each.layer, use, training=training), own)
        _replace(copy.graph, result, changed.value, before)
    copy.graph.sort()
    return replace(graph, model=copy)


def _inputs(tracer: Tracer, parameters: Mapping[str, NumpyArray]) -> dict[str, Array]:
    return {name: tracer.input(name, value.dtype, value.shape) for name, value in parameters.items()}


def _pairs(graph: ir.Graph, model: ForwardModel, besides: Sequence[_Beside]) -> Iterator[tuple[_Beside, Use]]:
    by_layer = {(each.layer.weight, each.layer.kind): each for each in besides}
    for use in uses_of(graph, model.parameters.keys()):
        key: tuple[str, Kind] = (use.name, use.kind)
        if key in by_layer:
            yield by_layer[key], use


def _replace(graph: ir.Graph, old: ir.Value, new: ir.Value, uses: Iterable[Any]) -> None:
    """Let what read a tensor before read another one."""
    for node, position in uses:
        node.replace_input_with(position, new)
    for position, value in enumerate(graph.outputs):
        if value is old:
            old.name, new.name = f"{old.name}/plain", old.name
            graph.outputs[position] = new


def _merging(model: ForwardModel, besides: Sequence[_Beside], parameters: Mapping[str, NumpyArray]) -> Merging:
    """The graph that merges, and the plain model that reads what it gives."""
    tracer = Tracer(new_graph("merge"))
    inputs = _inputs(tracer, parameters)
    known: dict[str, Array] = {}

    def state(name: str) -> Array:
        if name not in known:
            value = model.parameters[name]
            known[name] = tracer.input(name, value.dtype, value.shape)
        return known[name]

    places: dict[str, str] = {}
    merged: dict[str, Array] = {}
    for each in besides:
        layer = each.layer
        weight = weight_in(tracer, model, layer, state)
        bias = None if layer.bias is None else state(layer.bias)
        own = {key: inputs[name] for key, name in each.names.items()}
        changed, added = each.adapter.merged(xp, layer, reordered(xp, weight, layer.order), bias, own)
        # The inverse order puts the axes back.
        back = tuple(int(axis) for axis in np.argsort(layer.order))
        changed = xp.astype(reordered(xp, changed, back), weight.dtype)
        places[_merged_name(layer, layer.weight)] = layer.weight
        merged[_merged_name(layer, layer.weight)] = changed
        if added is not None and added is not bias and layer.bias is not None:
            places[_merged_name(layer, layer.bias)] = layer.bias
            merged[_merged_name(layer, layer.bias)] = added
    specs = {name: (array.dtype, array.shape) for name, array in merged.items()}
    for name, array in merged.items():
        tracer.output(array, name)
    merge = ForwardGraph(new_model(tracer.graph), (), tuple(places))
    return Merging(merge, _plain(model, besides, specs), places)


def _plain(
    model: ForwardModel, besides: Sequence[_Beside], specs: Mapping[str, tuple[np.dtype[Any], Shape]]
) -> ForwardGraph:
    copy = copied(model.evaluate.model)
    tracer = Tracer(copy.graph)
    merged = {name: tracer.input(name, dtype, shape) for name, (dtype, shape) in specs.items()}
    for each, use in _pairs(copy.graph, model, besides):
        operand = use.node.inputs[use.weight]
        weight = merged[_merged_name(each.layer, each.layer.weight)]
        use.node.replace_input_with(use.weight, _seen_as(weight, operand, use.source).value)
        bias = None if each.layer.bias is None else merged.get(_merged_name(each.layer, each.layer.bias))
        if bias is not None and use.bias is not None:
            reader = use.node if use.sum is None else use.sum
            for position, value in enumerate(reader.inputs):
                if value is use.bias:
                    reader.replace_input_with(position, bias.value)
    copy.graph.sort()
    remove_unused(copy)
    return replace(model.evaluate, model=copy)


def _seen_as(weight: Array, operand: ir.Value | None, source: ir.Value) -> Array:
    """A weight through copies of the nodes between its input and the operator."""
    if operand is source or operand is None:
        return weight
    node = operand.producer()
    if node is None:
        return weight
    inner = _seen_as(weight, node.inputs[0], source)
    if node.op_type == "Cast":
        return xp.astype(inner, np.dtype(ir.DataType(node.attributes["to"].as_int()).numpy()))
    if node.op_type == "Transpose":
        axes = node.attributes.get_ints("perm") or tuple(reversed(range(len(inner.shape))))
        turned: Array = xp.permute_dims(inner, axes)
        return turned
    return inner


def _merged_name(layer: Layer, name: str) -> str:
    """A tied weight is two when one of its uses is merged."""
    return f"{MERGED}{layer.module}.{name.rpartition('.')[2]}"
