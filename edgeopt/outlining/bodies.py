"""A marked stretch as the body of a function."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import onnx_ir as ir

from edgeopt.outlining.regions import Region
from edgeopt.tracing.copying import Copies, copy_nodes, copy_value
from edgeopt.tracing.tracer import DOMAIN, OPSET

__all__ = ["OWN", "RESULTS", "fingerprint", "function_of"]

#: What a marker says for itself, and not about the operation.
OWN = frozenset({"region", "position", "operation"})

#: The attribute that says which of the operation's results a node has.
RESULTS = "results"


def function_of(region: Region, name: str) -> ir.Function:
    """A function with copies of the stretch's nodes; its inputs and outputs are named after their order.

    The names of the operation's attributes are declared: the body does not read them, a native kernel does.
    """
    copies: Copies = {}
    inputs = []
    for position, node in enumerate(region.enters):
        copies[node.outputs[0]] = copy_value(node.outputs[0], f"operand_{position}")
        inputs.append(copies[node.outputs[0]])
    nodes = list(copy_nodes(region.nodes, copies, ""))
    outputs = []
    for leaf in region.leaves:
        value = copies[leaf.inputs[0]]  # type: ignore[index]  # a marker has its operand
        value.name = f"result_{leaf.attributes['position'].as_int()}"
        outputs.append(value)
    graph = ir.Graph(inputs, outputs, nodes=nodes, name=name, opset_imports={"": OPSET})
    given = [*(key for key in region.leaves[0].attributes if key not in OWN), RESULTS]
    declared = [ir.Attr(key, ir.AttributeType.UNDEFINED, None) for key in given]
    return ir.Function(DOMAIN, name, graph=graph, attributes=declared)


def fingerprint(region: Region) -> str:
    """Equal for stretches whose nodes are equal but for their names, and whose attributes have the same names."""
    numbers: dict[ir.Value | None, str] = {None: "-"}
    for position, node in enumerate(region.enters):
        numbers[node.outputs[0]] = f"i{position}"
    parts = list(_described(region.nodes, numbers, ""))
    parts += [f"{leaf.attributes['position'].as_int()}={numbers[leaf.inputs[0]]}" for leaf in region.leaves]
    parts += sorted(set(region.leaves[0].attributes) - OWN)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _described(nodes: Iterable[ir.Node], numbers: dict[ir.Value | None, str], prefix: str) -> Iterator[str]:
    for index, node in enumerate(nodes):
        inputs = " ".join(numbers[value] for value in node.inputs)
        outputs = "".join("o" if value.name else "-" for value in node.outputs)
        yield f"{node.domain}:{node.op_type}({inputs}){outputs}"
        for key, attribute in sorted(node.attributes.items()):
            if attribute.type is ir.AttributeType.GRAPH:
                yield from _described_graph(attribute.as_graph(), numbers, f"{prefix}{index}.{key}.")
            else:
                content = ir.serde.serialize_attribute(attribute).SerializeToString(deterministic=True)
                yield f"{key}={hashlib.sha256(content).hexdigest()}"
        numbers.update((value, f"{prefix}{index}:{position}") for position, value in enumerate(node.outputs))


def _described_graph(graph: ir.Graph, numbers: dict[ir.Value | None, str], prefix: str) -> Iterator[str]:
    numbers.update((value, f"{prefix}i{position}") for position, value in enumerate(graph.inputs))
    yield from _described(graph, numbers, prefix)
    yield " ".join(numbers[value] for value in graph.outputs)
