"""Which nodes of a function's body can run as chains, and which of them together.

A chain computes element by element, and may reduce what it computes to numbers. Whatever else there is (products of
matrices, arithmetic of single numbers) stays a node, and what reads its result runs in a later chain: each value has a
level, the number of chains that must have run before. All elementwise nodes of one level make one chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir as ir

from edgeopt.fusion.blocks import unroll
from edgeopt.fusion.instructions import COPY, INSTRUCTIONS, REDUCTIONS, Instruction
from edgeopt.fusion.reducing import checked, reduces
from edgeopt.fusion.values import Piece, is_vector, same_elements, shape_of, size_of, splat, split_sizes
from edgeopt.tracing.subgraphs import operands

__all__ = ["Analysis", "Part", "Reduction", "analyse"]


class Part(NamedTuple):
    """A value that a chain of some level can write: elements of what a node computes."""

    level: int
    root: ir.Value
    offset: int


class Reduction(NamedTuple):
    """One number of all elements of some values."""

    level: int
    kind: int
    values: tuple[ir.Value, ...]


@dataclass
class Analysis:
    """What was found.

    Attributes:
        elements: The elementwise nodes with their instructions.
        parts: What they compute, in all shapes in which it is read.
        reductions: The reductions, by node.
        absorbed: Nodes that a reduction replaces.
        origins: Of what stands for the results of an update in blocks, these results; see `blocks.unroll`.
    """

    elements: dict[ir.Node, Instruction] = field(default_factory=dict)
    parts: dict[ir.Value, Part] = field(default_factory=dict)
    reductions: dict[ir.Node, Reduction] = field(default_factory=dict)
    absorbed: dict[ir.Node, ir.Node] = field(default_factory=dict)
    origins: dict[ir.Value, ir.Value] = field(default_factory=dict)

    def register(self, value: ir.Value) -> Part | None:
        """The part, if it is all that a node computes, in its order."""
        part = self.parts.get(value)
        return part if part is not None and size_of(part.root) == size_of(value) else None

    def pieces(self, value: ir.Value) -> list[Piece]:
        """Where the elements of a value lie that the chain reads from memory."""
        node = value.producer()
        if value in self.parts or node is None:
            return [Piece(value, 0, size_of(value))]
        if same_elements(node):
            return self.pieces(node.inputs[0])  # type: ignore[arg-type]  # a view has an input
        if _joins(node):
            return [piece for part in node.inputs if part is not None for piece in self.pieces(part)]
        if (sizes := split_sizes(node)) is not None:
            begin = sum(sizes[: value.index() or 0])
            return list(_slice(self.pieces(node.inputs[0]), begin, size_of(value)))  # type: ignore[arg-type]  # as above
        return [Piece(value, 0, size_of(value))]


def analyse(graph: ir.Graph) -> Analysis:
    """Examine a body whose nodes are sorted; updates in blocks are written out as those of whole vectors, in place."""
    origins = unroll(graph)
    excluded: set[ir.Node] = set()
    while True:
        found, levels = _analyse(graph, excluded, origins)
        # A truth value does not leave its chain.
        leaving = {
            node
            for node in found.elements
            if node.outputs[0].dtype == ir.DataType.BOOL and _leaves(found, node.outputs[0], levels[node])
        }
        if not leaving:
            return found
        excluded |= leaving


def _analyse(
    graph: ir.Graph, excluded: set[ir.Node], origins: dict[ir.Value, ir.Value]
) -> tuple[Analysis, dict[ir.Node, int]]:
    found = Analysis(origins=origins)
    replaced = {value.producer() for value in origins.values()}
    finite = {node: values for node in graph if (values := checked(node)) is not None}
    for node, (_, absorbed) in finite.items():
        found.absorbed.update(dict.fromkeys(absorbed, node))
    ready: dict[ir.Value, int] = {}  # the level from which on other nodes can read it
    levels: dict[ir.Node, int] = {}
    for node in graph:
        if node in found.absorbed or node in replaced:
            continue
        inputs = [value for value in operands(node) if value is not None]
        if node in finite or (kind := reduces(node)) is not None:
            looked_at = finite[node][0] if node in finite else tuple(inputs[:1])
            level = max(_level(found, ready, value) for value in looked_at)
            kind = REDUCTIONS["Finite"] if node in finite else kind
            found.reductions[node] = Reduction(level, kind or 0, looked_at)
            ready[node.outputs[0]] = level + 1
            continue
        instruction = None if node in excluded else _instruction(found, node)
        if instruction is not None:
            level = max(_level(found, ready, value) for value in inputs)
            found.elements[node] = instruction
            found.parts[node.outputs[0]] = Part(level, node.outputs[0], 0)
        elif inputs and inputs[0] in found.parts and (same_elements(node) or split_sizes(node) is not None):
            source, offset = found.parts[inputs[0]], 0
            level = source.level
            for value in node.outputs:
                found.parts[value] = Part(level, source.root, source.offset + offset)
                offset += size_of(value)
        else:
            level = max((ready.get(value, 0) for value in inputs), default=0)
            ready.update(dict.fromkeys(node.outputs, level))
            levels[node] = level
            continue
        levels[node] = level
        ready.update(dict.fromkeys(node.outputs, level + 1))
    return found, levels


def _level(found: Analysis, ready: dict[ir.Value, int], value: ir.Value) -> int:
    """The level of a chain that reads a value: that of the chain that makes it, if it is there as a register."""
    register = found.register(value)
    return ready.get(value, 0) if register is None else register.level


def _instruction(found: Analysis, node: ir.Node) -> Instruction | None:
    if node.domain or len(node.outputs) != 1 or not is_vector(node.outputs[0]):
        return None
    instruction = INSTRUCTIONS.get(node.op_type)
    if node.op_type == "Cast" or (node.op_type == "IsInf" and node.attributes):
        instruction = COPY if node.op_type == "Cast" else None
    if instruction is None or any(value is None for value in node.inputs):
        return None
    if len(node.inputs) != instruction.operands and not (instruction.folds and node.inputs):
        return None
    size = size_of(node.outputs[0])
    vectors = [value for value in node.inputs if value is not None and splat(value) is None]
    fit = all(is_vector(value) and size_of(value) == size for value in vectors)
    # Truth values are read from registers only.
    loaded = [value for value in vectors if found.register(value) is None]
    return instruction if vectors and fit and all(value.dtype == ir.DataType.FLOAT for value in loaded) else None


def _joins(node: ir.Node) -> bool:
    """Whether the output holds the elements of the inputs one after the other."""
    if node.domain or node.op_type != "Concat" or not all(map(is_vector, node.outputs)):
        return False
    shape = shape_of(node.outputs[0]) or ()
    axis = node.attributes["axis"].as_int() % max(len(shape), 1)
    before = [length for length in shape[:axis] if length != 1]
    return not before and all(value is not None and size_of(value) > 0 for value in node.inputs)


def _slice(pieces: list[Piece], begin: int, size: int) -> Iterator[Piece]:
    """So many elements from an offset on."""
    place = 0
    for piece in pieces:
        low, high = max(begin, place), min(begin + size, place + piece.size)
        if low < high:
            yield Piece(piece.value, piece.offset + low - place, high - low)
        place += piece.size


def _leaves(found: Analysis, value: ir.Value, level: int) -> bool:
    """Whether something outside the chain reads a value in any of its shapes."""
    if value.is_graph_output():
        return True
    for use in value.uses():
        node = use.node
        if node in found.elements and found.parts[node.outputs[0]].level == level:
            continue
        if node.outputs[0] in found.parts and node not in found.elements:
            if any(_leaves(found, output, level) for output in node.outputs):
                return True
            continue
        return True
    return False
