"""Calls of functions in place of marked stretches."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from edgeopt.outlining.bodies import OWN, RESULTS, fingerprint, function_of
from edgeopt.outlining.regions import Region, regions_of
from edgeopt.tracing.fusing import is_boundary
from edgeopt.tracing.subgraphs import all_nodes, detach
from edgeopt.tracing.tracer import DOMAIN

__all__ = ["MOST_BODIES", "outline"]

#: A native library registers its kernel under so many names: `Name`, `Name_2`, … A model may have one function of a
#: name, and the same operation has as many bodies as there are shapes.
MOST_BODIES = 64


def outline(graph: ir.Graph, functions: Mapping[str, ir.Function]) -> dict[str, ir.Function]:
    """Put, in place, a call of a function where a marked stretch of the graph is, and remove all markers.

    Stretches of the same operation with equal nodes share a function. One that is not in one piece any more, or whose
    operation has as many functions as there are names, stays as it is.

    Args:
        graph: A finished graph.
        functions: Those that the model has, whose names are taken.

    Returns:
        The new functions by name.
    """
    made: dict[str, ir.Function] = {}
    known: dict[str, str] = {}
    replaced: list[ir.Node] = []
    for region in regions_of(graph):
        operation = region.leaves[0].attributes["operation"].as_string()
        key = operation + fingerprint(region)
        name = known.get(key) or _free_name(operation, {**functions, **made})
        if name is None:
            continue
        if key not in known:
            known[key] = name
            made[name] = function_of(region, name)
        replaced += _replace(graph, region, made[name])
    graph.remove(replaced)
    _remove_markers(graph)
    return made


def _free_name(operation: str, taken: Mapping[str, ir.Function]) -> str | None:
    names = (f"{operation}_{number}" if number > 1 else operation for number in range(1, MOST_BODIES + 1))
    return next((name for name in names if name not in taken), None)


def _replace(graph: ir.Graph, region: Region, function: ir.Function) -> list[ir.Node]:
    """Let everything read a call; the nodes that stand for nothing any more are left to be removed."""
    first = region.leaves[0]
    attributes = [attribute for name, attribute in first.attributes.items() if name not in OWN]
    attributes.append(ir.AttrInt64s(RESULTS, [leaf.attributes["position"].as_int() for leaf in region.leaves]))
    call = ir.Node(
        DOMAIN,
        function.name,
        [node.inputs[0] for node in region.enters],
        attributes,
        num_outputs=len(region.leaves),
        name=first.name,
    )
    graph.insert_before(first, call)
    for old, new in zip((leaf.outputs[0] for leaf in region.leaves), call.outputs, strict=True):
        new.type, new.shape = old.type, old.shape
        _take_over(old, new)
    left = list(region.leaves)
    for node in left:
        detach(node)
    for node in reversed((*region.enters, *region.nodes)):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            detach(node)
            left.append(node)
    return left


def _take_over(old: ir.Value, new: ir.Value) -> None:
    """Everything reads the new tensor, which has the old one's name."""
    name, old.name = old.name, None
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    new.name = name


def _remove_markers(graph: ir.Graph) -> None:
    """Let everything read through the markers that are left."""
    markers: dict[ir.Graph, list[ir.Node]] = {}
    for node in [node for node in all_nodes(graph) if is_boundary(node)]:
        value, operand = node.outputs[0], node.inputs[0]
        if operand is None or not isinstance(node.graph, ir.Graph):
            continue
        if value.is_graph_output():
            # A plain Identity keeps the output's name.
            copy = ir.Node("", "Identity", [operand], num_outputs=1, name=node.name)
            copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
            node.graph.insert_before(node, copy)
            _take_over(value, copy.outputs[0])
        else:
            value.replace_all_uses_with(operand)
        detach(node)
        markers.setdefault(node.graph, []).append(node)
    for owner, nodes in markers.items():
        owner.remove(nodes)
