"""The marked stretches of a graph: what lies between their markers, and whether it is still in one piece."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from edgeopt.tracing.fusing import ENTER, LEAVE, is_boundary
from edgeopt.tracing.randomness import RANDOM_OPERATORS
from edgeopt.tracing.subgraphs import all_nodes, bodies, operands

__all__ = ["Region", "regions_of"]


@dataclass(frozen=True)
class Region:
    """One stretch.

    Attributes:
        leaves: Its Leave nodes, in the order of their positions.
        enters: Its Enter nodes, in the order of theirs.
        nodes: What lies between, each behind what it reads, in an order that depends on nothing else; constants
            included, which others may read too.
    """

    leaves: tuple[ir.Node, ...]
    enters: tuple[ir.Node, ...]
    nodes: tuple[ir.Node, ...]


def regions_of(graph: ir.Graph) -> list[Region]:
    """The stretches that are in one piece: that read nothing but their operands, and show nothing but their results."""
    place = {node: position for position, node in enumerate(graph)}
    # A node of a body is its owner's.
    owners = {inner: node for node in graph for body in bodies(node) for inner in all_nodes(body)}
    constants = _constants(graph)
    leaves: dict[str, list[ir.Node]] = {}
    for node in graph:
        if is_boundary(node) and node.op_type == LEAVE:
            leaves.setdefault(node.attributes["region"].as_string(), []).append(node)
    found = []
    for region, ends in leaves.items():
        # A stretch that was computed again has several sets of markers of one name.
        for group in _apart(ends):
            made = _region(region, group, place, owners, constants)
            if made is not None:
                found.append(made)
    return found


def _apart(ends: list[ir.Node]) -> list[list[ir.Node]]:
    """Leave nodes of one name, one group for each repetition."""
    groups: list[list[ir.Node]] = []
    for node in ends:
        position = node.attributes["position"].as_int()
        group = next((g for g in groups if all(other.attributes["position"].as_int() != position for other in g)), None)
        if group is None:
            groups.append([node])
        else:
            group.append(node)
    return groups


def _constants(graph: ir.Graph) -> set[ir.Node]:
    """The nodes that depend on no input."""
    found: set[ir.Node] = set()
    for node in graph:
        if node.op_type in RANDOM_OPERATORS or bodies(node):
            continue
        if all(value is None or value.producer() in found for value in operands(node)):
            found.add(node)
    return found


def _region(
    name: str,
    ends: list[ir.Node],
    place: dict[ir.Node, int],
    owners: dict[ir.Node, ir.Node],
    constants: set[ir.Node],
) -> Region | None:
    inside: set[ir.Node] = set()
    enters: dict[int, ir.Node] = {}
    waiting = [value for node in ends for value in node.inputs]
    while waiting:
        value = waiting.pop()
        node = None if value is None else value.producer()
        if value is None or node in inside:
            continue
        if node is None or node not in place:
            return None
        if is_boundary(node):
            own_marker = node.op_type == ENTER and node.attributes["region"].as_string() == name
            if not own_marker or enters.setdefault(node.attributes["position"].as_int(), node) is not node:
                return None
            continue
        inside.add(node)
        waiting += operands(node)
    own = inside - constants
    results = [end.inputs[0] for end in ends]
    if len(set(results)) < len(ends) or not all(value is not None and value.producer() in own for value in results):
        return None
    within = {*inside, *ends}
    for node in (*own, *enters.values()):
        for value in node.outputs:
            if value.is_graph_output() or any(owners.get(use.node, use.node) not in within for use in value.uses()):
                return None
    leaves = tuple(sorted(ends, key=lambda node: node.attributes["position"].as_int()))
    return Region(
        leaves=leaves,
        enters=tuple(enters[position] for position in sorted(enters)),
        nodes=tuple(_in_order([leaf.inputs[0] for leaf in leaves], inside)),
    )


def _in_order(results: list[ir.Value | None], inside: set[ir.Node]) -> list[ir.Node]:
    """The nodes behind what they read, by the order in which they are first needed."""
    found: dict[ir.Node, None] = {}
    waiting = [(value.producer(), False) for value in reversed(results) if value is not None]
    while waiting:
        node, is_ready = waiting.pop()
        if node is None or node in found or node not in inside:
            continue
        if is_ready:
            found[node] = None
            continue
        waiting.append((node, True))
        waiting += [(value.producer(), False) for value in reversed(operands(node)) if value is not None]
    return list(found)
