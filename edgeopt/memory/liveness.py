"""Which tensors are there at the same time when ONNX Runtime runs a graph, one node after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx

from edgeopt.memory.arena import Arena, Chunk
from edgeopt.memory.shapes import Inferred, body_inputs, infer, inner_graphs

__all__ = ["Held", "Run", "run"]

# Operators that return the memory they were given, and those that may write over it.
_VIEWS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")
_OVER = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "And", "Or", "Xor", "Not", "IsNaN", "Cast", "Clip"),
        *("Relu", "LeakyRelu", "Elu", "Gelu", "Softplus", "HardSigmoid", "Sigmoid", "Tanh", "Erf"),
        *("Sqrt", "Exp", "Log", "Reciprocal", "Neg", "Abs", "Floor", "Ceil", "Round", "Sign"),
        *("Softmax", "LogSoftmax"),
    )
)


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


def run(graph: onnx.GraphProto, opset: int, given: Mapping[str, Inferred]) -> Run:
    """Follow a graph whose nodes stand in the order in which they run.

    Args:
        graph: As ONNX Runtime has optimised it.
        opset: Version of the standard operators.
        given: Types and shapes of its inputs.
    """
    return _Follower(graph, opset, given).follow()


class _Follower:
    def __init__(self, graph: onnx.GraphProto, opset: int, given: Mapping[str, Inferred]) -> None:
        self._nodes = list(graph.node)
        self._opset = opset
        self._sizes = infer(graph, opset, given)
        # What is not in the arena: inputs, constants, and outputs, which go where the caller wants them.
        self._elsewhere = {value.name for value in (*graph.input, *graph.output)} | {
            one.name for one in graph.initializer
        }
        self._reads = [set(_read(node)) for node in self._nodes]
        self._last = {name: index for index, names in enumerate(self._reads) for name in names}
        self._arena = Arena()
        self._owner: dict[str, str] = {}
        self._users: dict[str, int] = {}
        self._chunks: dict[str, Chunk] = {}
        self._makers: dict[str, str] = {}
        self._live = self._peak = 0
        self._where = ""
        self._held: tuple[str, ...] = ()

    def follow(self) -> Run:
        for index, node in enumerate(self._nodes):
            for position, name in enumerate(node.output):
                if name and name not in self._elsewhere:
                    self._place(index, node, position, name)
            self._work(node)
            for name in {*self._reads[index], *(name for name in node.output if name and name not in self._last)}:
                if self._last.get(name, index) == index:
                    self._release(name)
        unknown = tuple(name for node in self._nodes for name in node.output if name and name not in self._sizes)
        held = [Held(name, self._makers[name], self._nbytes(name)) for name in self._held]
        held.sort(key=lambda one: -one.nbytes)
        return Run(self._peak, self._arena.touched, self._where, tuple(held), unknown)

    def _nbytes(self, name: str) -> int:
        return self._sizes[name].nbytes if name in self._sizes else 0

    def _place(self, index: int, node: onnx.NodeProto, position: int, name: str) -> None:
        source = node.input[0] if node.input else ""
        if node.op_type in _VIEWS and position == 0:
            if source in self._owner:
                self._share(name, source)
            return
        if node.op_type in _OVER and position == 0:
            for operand in node.input[:2]:
                alone = self._users.get(self._owner.get(operand, ""), 0) == 1
                if alone and self._last[operand] == index and self._sizes.get(operand) == self._sizes.get(name):
                    self._share(name, operand)
                    return
        self._owner[name], self._users[name] = name, 1
        self._makers[name] = node.name
        self._chunks[name] = self._arena.take(self._nbytes(name))
        self._live += self._nbytes(name)

    def _share(self, name: str, other: str) -> None:
        owner = self._owner[other]
        self._owner[name] = owner
        self._users[owner] += 1

    def _release(self, name: str) -> None:
        owner = self._owner.pop(name, None)
        if owner is None:
            return
        self._users[owner] -= 1
        if not self._users[owner]:
            del self._users[owner]
            self._arena.give(self._chunks.pop(owner))
            self._live -= self._nbytes(owner)

    def _work(self, node: onnx.NodeProto) -> None:
        """The node itself: its workspace, and what its bodies hold."""
        space = [self._arena.take(size) for size in self._workspace(node) if size]
        live = self._live + sum(chunk.size for chunk in space)
        if live > self._peak:
            self._peak, self._where, self._held = live, node.name, tuple(self._users)
        for chunk in space:
            self._arena.give(chunk)

    def _workspace(self, node: onnx.NodeProto) -> Sequence[int]:
        bodies = inner_graphs(node)
        if bodies:
            given = {**self._sizes, **body_inputs(node, self._sizes)}
            return [max(run(body, self._opset, given).live for body in bodies)]
        shapes = [self._sizes[name].shape for name in node.input if name in self._sizes]
        if len(shapes) < 2 or len(shapes[0]) < 3:
            return []
        if node.op_type == "ConvTranspose":
            # The product of weights and input, before its columns are added up; of one image.
            _, out, *kernel = shapes[1]
            return [4 * out * math.prod(kernel) * math.prod(shapes[0][2:])]
        if node.op_type in ("Conv", "FusedConv") and node.domain != "com.microsoft.nchwc":
            result = self._sizes.get(node.output[0])
            _, channels, *kernel = shapes[1]
            if result is not None and math.prod(kernel) > 1 and channels > 1:
                return [4 * channels * math.prod(kernel) * math.prod(result.shape[2:])]
        return []


def _read(node: onnx.NodeProto) -> Iterator[str]:
    yield from (name for name in node.input if name)
    for body in inner_graphs(node):
        for inner in body.node:
            yield from _read(inner)
        yield from (value.name for value in body.output)
