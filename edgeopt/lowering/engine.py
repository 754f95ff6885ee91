"""Walk a graph and replace what the tables know how to say otherwise."""

from __future__ import annotations

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
from edgeopt.lowering import small_images as _small_images  # noqa: F401  # fills the table
from edgeopt.lowering import spatial as _spatial  # noqa: F401  # fills the table
from edgeopt.lowering import spectral as _spectral  # noqa: F401  # fills the table
from edgeopt.lowering import unread as _unread  # noqa: F401  # fills the table
from edgeopt.lowering import written as _written  # noqa: F401  # fills the table
from edgeopt.lowering.places import Places
from edgeopt.lowering.random import RANDOM, RandomStreams
from edgeopt.lowering.reading import read_all_outputs
from edgeopt.lowering.registry import LOWERINGS, Lowering
from edgeopt.lowering.sizes import ask_the_inputs
from edgeopt.tracing import IR_VERSION, Array, Tracer
from edgeopt.tracing.fusing import drop_unread
from edgeopt.tracing.randomness import is_random
from edgeopt.tracing.rewriting import replace_node
from edgeopt.tracing.site import Site
from edgeopt.tracing.spelling import spell_alike
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
    places = Places(tracer)
    if random_nodes:
        if seed is None or draws is None:
            names = ", ".join(repr(node.name) for node in random_nodes)
            raise TracingError(f"Random numbers are drawn ({names}), but there is no seed and counter to draw them by.")
        streams = RandomStreams(tracer, seed, draws, len(random_nodes))
        for ordinal, node in enumerate(random_nodes):
            with places.of(node):
                replace_node(tracer, node, RANDOM[node.op_type](Site(tracer, node), streams, ordinal))
    _lower_nodes(tracer, places)
    drop_unread(graph)
    ask_the_inputs(tracer, places)
    read_all_outputs(tracer, places)
    places.restore()
    graph.sort()  # the bodies too
    spell_alike(graph)
    model = ir.Model(graph, ir_version=IR_VERSION)
    common_passes.CommonSubexpressionEliminationPass()(model)
    remove_unused(graph)
    common_passes.RemoveUnusedNodesPass()(model)


def _lower_nodes(tracer: Tracer, places: Places) -> None:
    graph = tracer.graph
    while found := [(node, entry) for node in graph if (entry := _lowering_of(Site(tracer, node))) is not None]:
        for node, entry in found:
            with places.of(node):
                # A site of its own: the one that was asked above remembers inputs which have been replaced since.
                replace_node(tracer, node, entry.apply(Site(tracer, node)))
    for node in graph:
        for body in bodies(node):
            inner = tracer.within(body)
            inside = Places(inner)
            _lower_nodes(inner, inside)
            inside.restore()


def _lowering_of(site: Site) -> Lowering | None:
    entries = LOWERINGS.get(site.node.op_type, ()) if not site.node.domain else ()
    return next((entry for entry in entries if entry.when(site)), None)
