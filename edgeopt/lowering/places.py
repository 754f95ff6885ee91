"""Where nodes stand in a graph whose nodes are being replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import onnx_ir as ir

from edgeopt.tracing import Tracer
from edgeopt.tracing.marks import REGION

__all__ = ["Places"]


class Places:
    """Keeps what replaces a node in its place, under its name's beginning and in its region of recomputation.

    It is appended at the end at first.

    Of equal nodes the first remains: one of the forward pass, which a part of the model is known by, rather than one of
    the backward pass.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._rank = {node: position for position, node in enumerate(tracer.graph)}

    @contextmanager
    def of(self, node: ir.Node) -> Iterator[None]:
        """What is recorded inside takes the node's place."""
        last = self._tracer.graph[-1]
        region = node.metadata_props.get(REGION)
        path, _, _ = (node.name or "").rpartition("/")
        with self._tracer.scope(path) if path else nullcontext():
            yield
        for new in reversed(self._tracer.graph):
            if new is last:
                break
            self._rank.setdefault(new, self._rank[node])
            if region is not None:
                new.metadata_props[REGION] = region

    def restore(self) -> None:
        """Put the nodes into this order; what they need may stand behind them until the whole graph is sorted."""
        graph = self._tracer.graph
        nodes = sorted(graph, key=lambda node: self._rank.get(node, len(self._rank)))
        graph.remove(nodes)
        graph.extend(nodes)
