"""Which tensors are there at the same time when ONNX Runtime runs a graph, one node after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx

from edgeopt.memory.arena import Arena, Chunk
from edgeopt.memory.reuse import VIEWS, buffers
from edgeopt.memory.shapes import Inferred, OpenShape, body_inputs, infer, inner_graphs
from edgeopt.memory.workspaces import workspace

__all__ = ["Held", "Run", "run"]


@dataclass(frozen=True)
class Held:
    """A tensor that is in memory when most is.

    Attributes:
        name: Its own.
        node: Name of the node that computed it.
        nbytes: Its size.
    """

    name: str
    node: str
    nbytes: int


@dataclass(frozen=True)
class Run:
    """One run of a graph.

    Attributes:
        live: Bytes of intermediate tensors at the moment when there are most, workspace of operators included.
        touched: Bytes that the arena has touched by the end of the run.
        node: Name of the node that runs when most is live.
        held: The tensors of that moment, largest first.
        unknown: Names of tensors whose sizes are not known before the graph runs; they count as nothing.
    """

    live: int
    touched: int
    node: str
    held: tuple[Held, ...]
    unknown: tuple[str, ...]


def run(
    graph: onnx.GraphProto, opset: int, given: Mapping[str, Inferred], planned: Mapping[str, OpenShape] | None = None
) -> Run:
    """Follow a graph whose nodes stand in the order in which they run.

    Args:
        graph: As ONNX Runtime has optimised it.
        opset: Version of the standard operators.
        given: Types and shapes of its inputs.
        planned: Shapes as far as they are known before there is a batch. ONNX Runtime decides then what is written over
            what, and where it cannot see that two sizes are equal, nothing is.
    """
    return _Follower(graph, opset, given, planned or {}).follow()


class _Follower:
    def __init__(
        self, graph: onnx.GraphProto, opset: int, given: Mapping[str, Inferred], planned: Mapping[str, OpenShape]
    ) -> None:
        self._nodes = list(graph.node)
        self._opset = opset
        self._sizes = infer(graph, opset, given)
        # What is not in the arena: inputs, constants, and outputs, which go where the caller wants them.
        elsewhere = {value.name for value in (*graph.input, *graph.output)} | {one.name for one in graph.initializer}
        # In order: where memory lies depends on which is given back first, and that is to be the same in every run.
        reads = [list(dict.fromkeys(_read(node))) for node in self._nodes]
        self._owner = buffers(self._nodes, reads, elsewhere, self._sizes, planned)
        # The node after which the memory is given back.
        self._last: dict[str, int] = {}
        for index, (node, names) in enumerate(zip(self._nodes, reads, strict=True)):
            used = (*names, *node.output)
            self._last.update({self._owner[name]: index for name in used if name in self._owner})
        self._arena = Arena()
        self._chunks: dict[str, Chunk] = {}
        self._holders: dict[str, tuple[str, str]] = {}
        self._live = self._peak = 0
        self._where = ""
        self._held: tuple[Held, ...] = ()

    def follow(self) -> Run:
        ending: dict[int, list[str]] = {}
        for buffer, index in self._last.items():
            ending.setdefault(index, []).append(buffer)
        for index, node in enumerate(self._nodes):
            for name in (name for name in node.output if name in self._owner):
                self._place(node, name)
            self._work(node)
            for buffer in ending.get(index, ()):
                self._arena.give(self._chunks.pop(buffer))
                self._live -= self._nbytes(buffer)
                del self._holders[buffer]
        unknown = tuple(name for node in self._nodes for name in node.output if name and name not in self._sizes)
        held = sorted(self._held, key=lambda one: -one.nbytes)
        return Run(self._peak, self._arena.touched, self._where, tuple(held), unknown)

    def _nbytes(self, name: str) -> int:
        return self._sizes[name].nbytes if name in self._sizes else 0

    def _place(self, node: onnx.NodeProto, name: str) -> None:
        buffer = self._owner[name]
        if buffer == name:
            self._chunks[name] = self._arena.take(self._nbytes(name))
            self._live += self._nbytes(name)
        if buffer == name or node.op_type not in VIEWS:
            self._holders[buffer] = name, node.name

    def _work(self, node: onnx.NodeProto) -> None:
        """The node itself: its workspace, and what its bodies hold."""
        space = [self._arena.take(size) for size in self._workspace(node) if size]
        live = self._live + sum(chunk.size for chunk in space)
        if live > self._peak:
            self._peak, self._where = live, node.name
            self._held = tuple(Held(*holder, self._nbytes(holder[0])) for holder in self._holders.values())
        for chunk in space:
            self._arena.give(chunk)

    def _workspace(self, node: onnx.NodeProto) -> Sequence[int]:
        bodies = inner_graphs(node)
        if bodies:
            given = {**self._sizes, **body_inputs(node, self._sizes)}
            return [max(run(body, self._opset, given).live for body in bodies)]
        return workspace(node, self._sizes)


def _read(node: onnx.NodeProto) -> Iterator[str]:
    yield from (name for name in node.input if name)
    for body in inner_graphs(node):
        for inner in body.node:
            yield from _read(inner)
        yield from (value.name for value in body.output)
