"""The layers of a model that an adapter can go beside: which weight, read by which operator, seen from which side.

A layer is a linear map with a weight W of shape (out, in): a product with a matrix, a convolution (out, in, *kernel),
or the rows of an embedding, which is the product with vectors of zeros and a one. Graphs keep and read W in either
order; `Layer.order` and `Use` know, and adapters see (out, in, *kernel) alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import onnx_ir as ir

from edgeopt.tracing import to_numpy_dtype
from edgeopt.tracing.randomness import is_random
from edgeopt.tracing.subgraphs import bodies
from edgeopt.training.forward import ForwardModel

__all__ = ["Kind", "Layer", "Use", "find_layers", "uses_of"]

Kind: TypeAlias = Literal["linear", "convolution", "embedding"]

# What exporters call a constant of their own.
_ANONYMOUS = re.compile(r"[\w:]*\d+")
# What quantizers add to the name of a weight.
_QUANTIZED = re.compile(r"(?:_quantized|_q|_int8)$")
_NARROW = frozenset({ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4})
# What may stand between a weight and the operator that multiplies by it.
_PASSED = frozenset({"Cast", "Identity", "Transpose"})


@dataclass(frozen=True)
class Layer:
    """A weight, and the operators of one kind that read it.

    Attributes:
        weight: Name of the parameter; or of the largest constant or parameter that the weight is computed from, as one
            of int8 that is dequantized.
        module: What owns it: its name without `.weight`.
        kind: What the operators are.
        shape: (out, in, *kernel); of a convolution in groups, in is the number of channels that a group reads.
        order: Puts the axes of the parameter in this order.
        groups: Of a convolution.
        dtype: Of the weight.
        bias: Name of the parameter that is added afterwards, if there is one.
        computed_bias: Whether something else is added in the operator itself.
        last: Whether no other layer reads what comes out of it.
        computed: Whether the weight is not the parameter itself.
    """

    weight: str
    module: str
    kind: Kind
    shape: tuple[int, ...]
    order: tuple[int, ...]
    groups: int
    dtype: np.dtype[Any]
    bias: str | None
    computed_bias: bool = False
    last: bool = False
    computed: bool = False

    @property
    def lies_across(self) -> bool:
        """Whether the module keeps the weight of a linear layer as (in, out), as GPT-2 does: PEFT's fan_in_fan_out.

        Exporters transpose weights, but not those that keep their name.
        """
        return self.kind == "linear" and self.order == (1, 0) and self.weight == f"{self.module}.weight"

    @property
    def features_out(self) -> int:
        """Length of what comes out."""
        return self.shape[0]

    @property
    def features_in(self) -> int:
        """Length of what goes in, all groups together."""
        return self.shape[1] * self.groups


class Use(NamedTuple):
    """One operator that reads a weight.

    Attributes:
        node: The operator.
        kind: What it is.
        name: Of the weight, as in `Layer`.
        source: The weight itself: a parameter, or what is computed from some.
        order: As in `Layer`.
        data: Position of the other operand.
        weight: Position of the weight.
        sum: The Add of a bias behind it, if there is one.
        bias: What it adds, or the operator itself does.
    """

    node: ir.Node
    kind: Kind
    name: str
    source: ir.Value
    order: tuple[int, ...]
    data: int
    weight: int
    sum: ir.Node | None
    bias: ir.Value | None

    @property
    def result(self) -> ir.Value:
        """What comes out, with the bias."""
        return (self.node if self.sum is None else self.sum).outputs[0]


def find_layers(model: ForwardModel) -> list[Layer]:
    """Every layer of a model, in the order of the forward pass.

    A weight that is read in two ways, as an embedding that is the output layer too, is a layer each time.
    """
    parameters = model.parameters
    found: dict[tuple[str, Kind], Layer] = {}
    uses = uses_of(model.evaluate.model.graph, parameters.keys())
    names = _names(model)
    last = _last(model.evaluate.model.graph, uses)
    for use in uses:
        name, computed = use.name, not use.source.is_graph_input()
        bias = None if use.bias is None else use.bias.name
        stored = () if use.source.shape is None else use.source.shape.numpy()
        shape = tuple(stored[axis] for axis in use.order)
        groups = use.node.attributes.get_int("group", 1) or 1 if use.kind == "convolution" else 1
        known = found.get((name, use.kind))
        if known is not None:
            continue
        found[name, use.kind] = Layer(
            weight=name,
            module=_module(names.get(name) or [_QUANTIZED.sub("", name)], use.node, bias),
            kind=use.kind,
            shape=shape,
            order=use.order,
            groups=groups,
            dtype=to_numpy_dtype(use.source.dtype or ir.DataType.FLOAT),
            bias=bias if bias in parameters else None,
            computed_bias=use.bias is not None and bias not in parameters,
            last=use.node in last,
            computed=computed,
        )
    return _told_apart(list(found.values()))


def _told_apart(layers: list[Layer]) -> list[Layer]:
    """Two layers of one module keep the names of their weights."""
    modules = [layer.module for layer in layers]
    return [
        layer if modules.count(layer.module) == 1 else replace(layer, module=layer.weight.removesuffix(".weight"))
        for layer in layers
    ]


def uses_of(graph: ir.Graph, parameters: Collection[str]) -> list[Use]:
    """The operators of a graph that multiply something by a weight, in order."""
    fixed = _fixed(graph, parameters)
    inputs = {value: None for value in graph.inputs if value.name in parameters}
    uses = []
    for node in graph:
        found = None if node.domain else _use(node)
        if found is None:
            continue
        kind, data, weight, order = found
        source, permuted = _source(node.inputs[weight])
        if source is None or not fixed.get(source, _NOTHING).is_weight or node.inputs[data] in (None, *fixed):
            continue
        if source.shape is None or not source.shape.is_static() or source.dtype is None:
            continue
        total, bias = _bias(node, kind, inputs)
        name = fixed[source].name
        order = tuple(permuted[axis] for axis in order)
        uses.append(Use(node, kind, name, source, order, data, weight, total, bias))
    # Of what is cut out of one parameter, each piece would be a weight; there is no name for them.
    sources: dict[str, set[ir.Value]] = {}
    for use in uses:
        sources.setdefault(use.name, set()).add(use.source)
    return [use for use in uses if len(sources[use.name]) == 1]


class _Origin(NamedTuple):
    """The largest parameter or constant that a tensor is computed from, and whether that makes it a weight.

    Constants that are none of the model's parameters are settings, but for those of few bits.
    """

    size: int
    name: str
    is_weight: bool


_NOTHING = _Origin(0, "", False)


def _fixed(graph: ir.Graph, parameters: Collection[str]) -> dict[ir.Value, _Origin]:
    """The tensors that no input of the model has a part in."""
    found = {value: _origin(value, is_weight=True) for value in graph.inputs if value.name in parameters}
    found |= {value: _origin(value, is_weight=_is_narrow(value)) for value in graph.initializers.values()}
    for node in graph:
        if node.op_type == "Constant":
            found |= {value: _origin(value, is_weight=_is_narrow(value)) for value in node.outputs}
        elif all(value is None or value in found for value in node.inputs) and not is_random(node) and not bodies(node):
            origins = [found[value] for value in node.inputs if value is not None]
            largest = max(origins, default=_NOTHING)._replace(is_weight=any(each.is_weight for each in origins))
            found |= dict.fromkeys(node.outputs, largest)
    return found


def _origin(value: ir.Value, *, is_weight: bool) -> _Origin:
    static = value.shape is not None and value.shape.is_static()
    size = math.prod(value.shape.numpy()) if static and value.shape is not None else 0
    return _Origin(size, value.name or "", is_weight)


def _is_narrow(value: ir.Value) -> bool:
    """Whether a constant may be a weight in a few bits."""
    return value.dtype in _NARROW and value.shape is not None and value.shape.rank() >= 2


def _use(node: ir.Node) -> tuple[Kind, int, int, tuple[int, ...]] | None:
    """Kind, positions of data and weight, and the axes of the operand that are (out, in, *kernel)."""
    operator = node.op_type
    if operator == "MatMul" and _rank(node.inputs[1]) == 2:
        return "linear", 0, 1, (1, 0)
    if operator == "Gemm" and not node.attributes.get_int("transA", 0):
        return "linear", 0, 1, (0, 1) if node.attributes.get_int("transB", 0) else (1, 0)
    if operator == "Conv" and _rank(node.inputs[1]) is not None:
        return "convolution", 0, 1, tuple(range(_rank(node.inputs[1]) or 0))
    if operator == "Gather" and node.attributes.get_int("axis", 0) == 0 and _rank(node.inputs[0]) == 2:
        return "embedding", 1, 0, (1, 0)
    return None


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else value.shape.rank()


def _source(value: ir.Value | None) -> tuple[ir.Value | None, tuple[int, ...]]:
    """The weight behind an operand, and which of its axes the operand's are."""
    order = tuple(range(_rank(value) or 0))
    while value is not None and (node := value.producer()) is not None:
        operand = node.inputs[0] if node.inputs else None
        if node.domain or node.op_type not in _PASSED or operand is None:
            break
        if operand.dtype is None or not operand.dtype.is_floating_point():
            break
        if node.op_type == "Transpose":
            permutation = node.attributes.get_ints("perm") or tuple(reversed(range(len(order))))
            order = tuple(permutation[axis] for axis in order)
        value = operand
    return value, order


def _bias(node: ir.Node, kind: Kind, inputs: Mapping[ir.Value, None]) -> tuple[ir.Node | None, ir.Value | None]:
    if node.op_type in ("Gemm", "Conv"):
        return None, node.inputs[2] if len(node.inputs) > 2 else None
    uses = list(node.outputs[0].uses())
    if kind != "linear" or len(uses) != 1 or uses[0].node.op_type != "Add" or node.outputs[0].is_graph_output():
        return None, None
    total, position = uses[0]
    other = total.inputs[1 - position]
    if other is not None and other in inputs and _rank(other) == 1:
        return total, other
    return None, None


def _names(model: ForwardModel) -> dict[str, list[str]]:
    """Each parameter's names in the model, its own first."""
    names = {name: [name] for name in model.parameters}
    for alias, name in model.aliases.items():
        if name in names:
            names[name].append(alias)
    return names


def _module(names: Sequence[str], node: ir.Node, bias: str | None) -> str:
    """The module whose operator this is.

    A weight may belong to several. In files, exporters that transpose weights leave them without the module's name,
    which then stands in the operator's name, `/encoder/layer.0/query/MatMul`, or in that of the bias.
    """
    modules = [name.removesuffix(".weight") for name in names]
    path = (node.name or "").rpartition("/")[0].strip("/").replace("/", ".")
    if path in modules or (path and _ANONYMOUS.fullmatch(names[0])):
        return path
    if bias is not None and bias.endswith(".bias") and _ANONYMOUS.fullmatch(names[0]):
        return bias.removesuffix(".bias")
    return modules[0]


def _last(graph: ir.Graph, uses: Sequence[Use]) -> set[ir.Node]:
    """The operators from which no path leads to another one."""
    nodes = {use.node for use in uses if use.kind != "embedding"}
    reaching: set[ir.Node] = set()
    # From the outputs to the inputs.
    for node in reversed(list(graph)):
        users = {use.node for value in node.outputs for use in value.uses()}
        if any(user in reaching or user in nodes for user in users):
            reaching.add(node)
    return nodes - reaching
