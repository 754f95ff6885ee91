"""One chain: the elementwise nodes of a level as a program, and the same nodes as the body that any runtime can run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import onnx_ir as ir

from edgeopt.fusion.analysis import Analysis
from edgeopt.fusion.instructions import COPY
from edgeopt.fusion.programs import CONSTANT, LOAD, NOWHERE, NUMBER, RESULT, OutputPort, Section, Unit, encode, operand
from edgeopt.fusion.values import Piece, shape_of, size_of, splat
from edgeopt.tracing.copying import copy_graph
from edgeopt.tracing.subgraphs import operands

__all__ = ["Chain"]


class Chain:
    """The nodes of one level, with what they read and write.

    Attributes:
        inputs: The tensors that it reads: vectors, and single numbers.
        outputs: The values that others read.
    """

    def __init__(self, found: Analysis, level: int) -> None:
        self.found, self.level = found, level
        self.nodes = [node for node in found.elements if found.parts[node.outputs[0]].level == level]
        self.reductions = [node for node, reduction in found.reductions.items() if reduction.level == level]
        self._parts = [value for value, part in found.parts.items() if part.level == level]
        self._inside = {*self.nodes, *self.reductions}
        self._inside |= {node for node, owner in found.absorbed.items() if owner in self._inside}
        self._inside |= {node for value in self._parts if (node := value.producer()) is not None}
        written = [*self._parts, *(node.outputs[0] for node in self.reductions)]
        self.outputs = [value for value in written if self._is_read(value)]
        self.place = {value: position for position, value in enumerate(self.outputs)}
        self._stored = self._by_root()
        self._reduced = self._reductions_by_vector()
        self.inputs: dict[ir.Value, int] = {}
        self.loaded: set[ir.Value] = set()
        self.constants: dict[float, int] = {}
        self.program = self._encode()

    def _is_read(self, value: ir.Value) -> bool:
        return value.is_graph_output() or any(use.node not in self._inside for use in value.uses())

    def _encode(self) -> list[int]:
        ports = [self._port(value) for value in self.outputs]
        sections: dict[Section, list[Unit]] = {}
        for component in self._components():
            section, units = _Component(self, component).encode()
            sections.setdefault(section, []).extend(units)
        sizes = [size_of(value) if value in self.loaded else -1 for value in self.inputs]
        return encode(sizes, ports, list(sections.items()))

    def _port(self, value: ir.Value) -> OutputPort:
        node = value.producer()
        reduction = self.found.reductions.get(node) if node is not None else None
        return OutputPort(shape_of(value) or (), 0 if reduction is None else reduction.kind)

    def input(self, value: ir.Value) -> int:
        """The place of an input, which is one from now on."""
        return self.inputs.setdefault(value, len(self.inputs))

    def constant(self, number: float) -> int:
        """The place of a constant, which is one from now on."""
        return self.constants.setdefault(number, len(self.constants))

    def _components(self) -> list[list[ir.Value]]:
        """The computed vectors that have to do with each other, and what else is reduced, in order of the nodes."""
        owner: dict[ir.Value, list[ir.Value]] = {}
        for node in self.nodes:
            joined = [node.outputs[0]]
            for value in node.inputs:
                register = self.here(value)
                if register is not None and owner[register] is not joined:
                    joined = [*owner[register], *joined] if joined != owner[register] else joined
                    for member in joined:
                        owner[member] = joined
            owner[node.outputs[0]] = joined
        for node in self.reductions:
            for value in self.found.reductions[node].values:
                if self.here(value) is None:
                    owner.setdefault(value, [])
        unique = {id(group): group for group in owner.values() if group}
        return [*unique.values(), *([value] for value, group in owner.items() if not group)]

    def here(self, value: ir.Value | None) -> ir.Value | None:
        """The result of a node of this chain that a value is, in whatever shape."""
        part = None if value is None else self.found.register(value)
        return part.root if part is not None and part.level == self.level else None

    def stores(self, root: ir.Value) -> Iterator[list[tuple[Piece, int]]]:
        """Where a computed vector goes: for each time that it is written, pieces of outputs with their beginnings."""
        left = sorted(self._stored.get(root, ()), key=lambda part: part[0])
        while left:
            row: list[tuple[Piece, int]] = []
            end = 0
            for offset, value in list(left):
                if offset >= end:
                    row.append((Piece(value, 0, size_of(value)), offset))
                    end = offset + size_of(value)
                    left.remove((offset, value))
            yield row

    def _by_root(self) -> dict[ir.Value, list[tuple[int, ir.Value]]]:
        """The outputs that hold a computed vector or a piece of it, and where each begins."""
        found: dict[ir.Value, list[tuple[int, ir.Value]]] = {}
        for value in self.outputs:
            if (part := self.found.parts.get(value)) is not None:
                found.setdefault(part.root, []).append((part.offset, value))
        return found

    def reduced(self, value: ir.Value) -> list[int]:
        """The outputs to which a vector is reduced."""
        return self._reduced.get(value, [])

    def _reductions_by_vector(self) -> dict[ir.Value, list[int]]:
        found: dict[ir.Value, list[int]] = {}
        for node in self.reductions:
            vectors = dict.fromkeys(self.here(read) or read for read in self.found.reductions[node].values)
            for vector in vectors:
                found.setdefault(vector, []).append(self.place[node.outputs[0]])
        return found

    def body(self) -> ir.Graph:
        """A graph of the chain's nodes that reads and writes what the chain does."""
        return _Body(self).graph


class _Component:
    """Vectors of one length that are computed together."""

    def __init__(self, chain: Chain, values: Sequence[ir.Value]) -> None:
        self.chain, self.values = chain, values
        self.size = size_of(values[0])
        self.results: dict[ir.Value, int] = {}
        self.loads: dict[tuple[Piece, ...], int] = {}
        self.instructions: list[tuple[int, ...]] = []

    def encode(self) -> tuple[Section, list[Unit]]:
        for value in self.values:
            node = value.producer()
            if self.chain.here(value) is value and node is not None:
                self._record(node)
        rows: list[list[tuple[Piece, int]]] = []
        stores: list[int] = []
        reductions: list[tuple[int, int]] = []
        for value in self.values:
            place = self._operand(value)
            for row in self.chain.stores(value):
                rows.append(row)
                stores.append(place)
            reductions += [(place, output) for output in self.chain.reduced(value)]
        section = Section(len(self.loads), tuple(self.instructions), tuple(stores), tuple(reductions))
        return section, list(self._units(rows))

    def _record(self, node: ir.Node) -> None:
        instruction = self.chain.found.elements[node]
        operands = [self._operand(value) for value in node.inputs if value is not None]
        if not instruction.folds or len(operands) == 2:
            self.instructions.append((instruction.code, *operands))
        else:
            first, *others = operands
            if not others:
                self.instructions.append((COPY.code, first))
            for other in others:
                self.instructions.append((instruction.code, first, other))
                first = operand(RESULT, len(self.instructions) - 1)
        self.results[node.outputs[0]] = operand(RESULT, len(self.instructions) - 1)

    def _operand(self, value: ir.Value) -> int:
        register = self.chain.here(value)
        if register is not None:
            return self.results[register]
        number = splat(value)
        if isinstance(number, float):
            return operand(CONSTANT, self.chain.constant(number))
        if number is not None:
            return operand(NUMBER, self.chain.input(number))
        pieces = tuple(self.chain.found.pieces(value))
        return operand(LOAD, self.loads.setdefault(pieces, len(self.loads)))

    def _units(self, rows: Sequence[Sequence[tuple[Piece, int]]]) -> Iterator[Unit]:
        """The vector in pieces of which each is one run of memory in everything that is read and written."""
        read = [[(piece, begin) for piece, begin in zip(pieces, _begins(pieces), strict=True)] for pieces in self.loads]
        columns = [*read, *rows]
        ends = {begin + piece.size for column in columns for piece, begin in column}
        cuts = sorted({0, self.size, *ends, *(begin for column in columns for _, begin in column)})
        for begin, end in pairwise(cuts):
            loads = [(self.chain.input(piece.value), offset) for piece, offset in _at(read, begin) if piece]
            self.chain.loaded |= {piece.value for pieces in self.loads for piece in pieces}
            stores = [
                (self.chain.place[piece.value] if piece else NOWHERE, offset) for piece, offset in _at(rows, begin)
            ]
            yield Unit(end - begin, tuple(loads), tuple(stores))


def _begins(pieces: Sequence[Piece]) -> Iterator[int]:
    place = 0
    for piece in pieces:
        yield place
        place += piece.size


def _at(columns: Sequence[Sequence[tuple[Piece, int]]], place: int) -> Iterator[tuple[Piece | None, int]]:
    """Of each column the piece that holds an element, if one does, and where in its memory that is."""
    for column in columns:
        here = ((piece, begin) for piece, begin in column if begin <= place < begin + piece.size)
        piece, begin = next(here, (None, 0))
        yield piece, 0 if piece is None else piece.offset + place - begin


class _Body:
    """Copies of a chain's nodes, and of those that only put in form what they read."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.graph = ir.Graph([], [], nodes=[], name="chain", opset_imports=chain_opsets(chain))
        self.copies: dict[ir.Value, ir.Value] = {}
        for value in chain.inputs:
            self.copies[value] = ir.Value(name=value.name, type=value.type, shape=value.shape)
            self.graph.inputs.append(self.copies[value])
        for value in chain.outputs:
            self.graph.outputs.append(self.copy(self._source(value)))

    def _source(self, value: ir.Value) -> ir.Value:
        """The value as the body computes it: in blocks, where the program has it for the whole vector."""
        return self.chain.found.origins.get(value, value)

    def copy(self, value: ir.Value) -> ir.Value:
        """The value inside the body. Depth first, so that nodes come after those that they read."""
        pending = [value]
        while pending:
            top = pending[-1]
            node = top.producer()
            if top in self.copies:
                pending.pop()
                continue
            if node is None:
                raise ValueError(f"{top.name} comes from outside the chain")
            reads = [self._source(read) for read in operands(node) if read is not None]
            missing = [read for read in reads if read not in self.copies]
            if missing:
                pending += missing
                continue
            inputs = [None if read is None else self.copies[self._source(read)] for read in node.inputs]
            attributes = [
                ir.AttrGraph(key, copy_graph(attribute.as_graph(), self.copies, f"{node.name}/"))
                if attribute.type is ir.AttributeType.GRAPH
                else attribute
                for key, attribute in node.attributes.items()
            ]
            twin = ir.Node(node.domain, node.op_type, inputs, attributes, num_outputs=len(node.outputs), name=node.name)
            for old, new in zip(node.outputs, twin.outputs, strict=True):
                new.name, new.type, new.shape = old.name, old.type, old.shape
                self.copies[old] = new
            self.graph.append(twin)
        return self.copies[value]


def chain_opsets(chain: Chain) -> dict[str, int]:
    """The operators' version of the graph that the nodes come from."""
    node = (chain.nodes or chain.reductions)[0]
    return {} if node.graph is None else {"": node.graph.opset_imports[""]}
