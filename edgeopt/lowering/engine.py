"""Walk a graph and replace what the tables know how to say otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from edgeopt.errors import TracingError, UnsupportedModelError
from edgeopt.lowering import auto_pad as _auto_pad  # noqa: F401  # fills the table
from edgeopt.lowering import batch_norm as _batch_norm  # noqa: F401  # fills the table
from edgeopt.lowering import ceil_mode as _ceil_mode  # noqa: F401  # fills the table
from edgeopt.lowering import determinant as _determinant  # noqa: F401  # fills the table
from edgeopt.lowering import float64 as _float64  # noqa: F401  # fills the table
from edgeopt.lowering import one_hot as _one_hot  # noqa: F401  # fills the table
from edgeopt.lowering import products as _products  # noqa: F401  # fills the table
from edgeopt.lowering import recurrent as _recurrent  # noqa: F401  # fills the table
from edgeopt.lowering import reductions as _reductions  # noqa: F401  # fills the table
from edgeopt.lowering import resize as _resize  # noqa: F401  # fills the table
from edgeopt.lowering import spatial as _spatial  # noqa: F401  # fills the table
from edgeopt.lowering import spectral as _spectral  # noqa: F401  # fills the table
from edgeopt.lowering import unread as _unread  # noqa: F401  # fills the table
from edgeopt.lowering.random import RANDOM, RandomStreams
from edgeopt.lowering.registry import LOWERINGS, Lowering
from edgeopt.tracing import IR_VERSION, Array, Tracer
from edgeopt.tracing.defaults import drop_default_attributes
from edgeopt.tracing.randomness import is_random
from edgeopt.tracing.rewriting import replace_node
from edgeopt.tracing.site import Site
from edgeopt.tracing.subgraphs import all_nodes, bodies, remove_unused

__all__ = ["lower", "uses_random_numbers"]


def uses_random_numbers(graph: ir.Graph) -> bool:
    """Whether a graph draws random numbers, so that `lower` needs a seed and a counter for it."""
    return any(map(_draws_here, graph))


def _draws_here(node: ir.Node) -> bool:
    return node.op_type in RANDOM and is_random(node)


def lower(target: Tracer | ir.Graph, *, seed: Array | None = None, draws: Array | None = None) -> None:
    """Replace, in place, the operators of a finished graph that ONNX Runtime's CPU provider (1.17 and later) lacks.

    Dropout and the other random operators become a generator in integer arithmetic, whose numbers depend on the seed,
    the counter, the node's place among the random nodes and the element's index, and on nothing else: every runtime
    draws the same. BatchNormalization in training mode becomes statistics and an inference-mode node. Operators
    without a float64 kernel are written with those that have one.

    Afterwards equal expressions are computed once, and what reaches no output is gone. The latter is not only thrift:
    from the second run on, ONNX Runtime 1.17 and 1.18 give a tensor that nobody reads the memory of one in use.

    Args:
        target: The graph, or a tracer that records into it.
        seed: An int64 scalar of the graph; needed where the graph draws random numbers.
        draws: An int64 scalar of the graph that counts the runs, so that each draws other numbers; as `seed`.

    Raises:
        TracingError: The graph draws random numbers, and seed or counter is missing.
        UnsupportedModelError: A body of control flow draws random numbers.
    """
    tracer = target if isinstance(target, Tracer) else Tracer(target)
    graph = tracer.graph
    random_nodes = [node for node in graph if _draws_here(node)]
    if inside := [node for node in all_nodes(graph) if is_random(node) and node.graph is not graph]:
        names = ", ".join(repr(node.name) for node in inside)
        raise UnsupportedModelError(
            f"Random numbers are drawn inside an If, Loop or Scan ({names}): draw them before it."
        )
    places = _Places(tracer)
    if random_nodes:
        if seed is None or draws is None:
            names = ", ".join(repr(node.name) for node in random_nodes)
            raise TracingError(f"Random numbers are drawn ({names}), but there is no seed and counter to draw them by.")
        streams = RandomStreams(tracer, seed, draws, len(random_nodes))
        for ordinal, node in enumerate(random_nodes):
            with places.of(node):
                replace_node(tracer, node, RANDOM[node.op_type](Site(tracer, node), streams, ordinal))
    _lower_nodes(tracer, places)
    places.restore()
    drop_default_attributes(graph)
    model = ir.Model(graph, ir_version=IR_VERSION)
    common_passes.CommonSubexpressionEliminationPass()(model)
    remove_unused(graph)
    common_passes.RemoveUnusedNodesPass()(model)


def _lower_nodes(tracer: Tracer, places: _Places) -> None:
    graph = tracer.graph
    while found := [(node, entry) for node in graph if (entry := _lowering_of(Site(tracer, node))) is not None]:
        for node, entry in found:
            with places.of(node):
                # A site of its own: the one that was asked above remembers inputs which have been replaced since.
                replace_node(tracer, node, entry.apply(Site(tracer, node)))
    for node in graph:
        for body in bodies(node):
            inner = tracer.within(body)
            inside = _Places(inner)
            _lower_nodes(inner, inside)
            inside.restore()


class _Places:
    """Keeps what replaces a node in its place and under its name's beginning, though it is appended at the end.

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
        path, _, _ = (node.name or "").rpartition("/")
        with self._tracer.scope(path) if path else nullcontext():
            yield
        for new in reversed(self._tracer.graph):
            if new is last:
                break
            self._rank.setdefault(new, self._rank[node])

    def restore(self) -> None:
        """Put the nodes into this order, as far as what they need allows."""
        graph = self._tracer.graph
        nodes = sorted(graph, key=lambda node: self._rank.get(node, len(self._rank)))
        graph.remove(nodes)
        graph.extend(nodes)
        graph.sort()


def _lowering_of(site: Site) -> Lowering | None:
    entries = LOWERINGS.get(site.node.op_type, ()) if not site.node.domain else ()
    return next((entry for entry in entries if entry.when(site)), None)
