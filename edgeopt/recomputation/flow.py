"""Which nodes of a training graph are its forward pass, and which wait for a cotangent."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from edgeopt.tracing.subgraphs import operands

__all__ = ["Flow", "size_of"]


def size_of(value: ir.Value) -> int:
    """Bytes of a tensor, counting 1 for each symbolic dimension: mostly they are the batch, the same for all."""
    if value.shape is None or value.dtype is None:
        return 0
    elements = 1
    for dim in value.shape:
        elements *= dim if isinstance(dim, int) else 1
    return int(elements * value.dtype.itemsize)


class Flow:
    """A training graph in topological order, seen from the tensor at which its backward pass begins.

    Attributes:
        nodes: All nodes, in order.
        operands: What each node reads, also from within its bodies.
        readers: The nodes that read a tensor.
        cotangents: The seed, and all that depends on it.
        backward: The nodes that depend on the seed: the backward pass, and the update behind it.
        activations: Tensors outside of it that depend on the sources. Others (parameters, what follows from them alone)
            are there at any time.
        forward: The nodes outside of it that compute what the graph returns, or the seed, in order. The rest
            serves the backward pass alone: a mask of positive elements, say.
    """

    def __init__(self, graph: ir.Graph, seed: ir.Value, sources: Collection[ir.Value]) -> None:
        self.nodes = list(graph)
        self.operands = {node: [value for value in operands(node) if value is not None] for node in self.nodes}
        self.readers: dict[ir.Value, list[ir.Node]] = {}
        self.backward: set[ir.Node] = set()
        self.activations = set(sources)
        self.cotangents = {seed}
        for node, read in self.operands.items():
            for value in set(read):
                self.readers.setdefault(value, []).append(node)
            if any(value in self.cotangents for value in read):
                self.backward.add(node)
                self.cotangents.update(node.outputs)
            elif any(value in self.activations for value in read):
                self.activations.update(node.outputs)
        self.forward = self.ancestors({seed, *(value for value in graph.outputs if value not in self.cotangents)})
        self._forward = set(self.forward)

    def ancestors(self, values: Collection[ir.Value]) -> list[ir.Node]:
        """The nodes that these tensors are computed from, in order."""
        wanted = set(values)
        found = []
        for node in reversed(self.nodes):
            if any(value in wanted for value in node.outputs):
                found.append(node)
                wanted.update(self.operands[node])
        return found[::-1]

    def descendants(self, nodes: Collection[ir.Node]) -> set[ir.Node]:
        """These nodes, and all that depend on them."""
        found = set(nodes)
        reached = {value for node in nodes for value in node.outputs}
        for node in self.nodes:
            if node not in found and any(value in reached for value in self.operands[node]):
                found.add(node)
                reached.update(node.outputs)
        return found

    def is_read_later(self, value: ir.Value) -> bool:
        """Whether the backward pass, or something that serves it alone, reads the tensor."""
        return any(node not in self._forward for node in self.readers.get(value, ()))
