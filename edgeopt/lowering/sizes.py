"""Sizes told by the graph's inputs, where those know them.

A node that only asks how large an activation is keeps it in memory for as long as the runtime puts the question off,
which may be to the end of a step. Most of an activation's dimensions are known, and the rest is the batch, a dimension
of an input.
"""

from __future__ import annotations

import math
from itertools import groupby

import numpy as np
import onnx_ir as ir

from edgeopt.lowering.places import Places
from edgeopt.tracing import Array, Tracer, op
from edgeopt.tracing.fusing import nodes_inside
from edgeopt.tracing.rewriting import replace_node

__all__ = ["ask_the_inputs"]


def ask_the_inputs(tracer: Tracer, places: Places) -> None:
    """Let Shape and Size of intermediate tensors read inputs instead, in place, where symbols say that they can."""
    known: dict[str, Array] = {}
    for value in tracer.graph.inputs:
        for axis, dim in enumerate(value.shape or ()):
            name = None if isinstance(dim, int) else dim.value
            if name is not None and name not in known:
                known[name] = op.Shape(tracer.wrap(value), start=axis, end=axis + 1)
    # A marked stretch reads nothing but its operands.
    marked = nodes_inside(tracer.graph)
    for node in list(tracer.graph):
        if node.op_type not in ("Shape", "Size") or node.domain or node.inputs[0] is None or node in marked:
            continue
        array = tracer.wrap(node.inputs[0])
        if array.value.producer() is None or array.value.shape is None:
            continue
        dims = array.shape
        if node.op_type == "Shape":
            dims = dims[slice(_bound(node, "start"), _bound(node, "end"))]
        if all(isinstance(dim, int) or dim in known for dim in dims):
            with places.of(node):
                replace_node(tracer, node, (_size if node.op_type == "Size" else _shape)(tracer, dims, known))


def _bound(node: ir.Node, name: str) -> int | None:
    return node.attributes[name].as_int() if name in node.attributes else None


def _shape(tracer: Tracer, dims: tuple[int | str | None, ...], known: dict[str, Array]) -> Array:
    pieces: list[Array] = []
    for is_number, run in groupby(dims, key=lambda dim: isinstance(dim, int)):
        stretch = list(run)
        pieces += [tracer.constant(np.asarray(stretch, np.int64))] if is_number else [known[str(d)] for d in stretch]
    if not pieces:
        return tracer.constant(np.zeros(0, np.int64))
    return pieces[0] if len(pieces) == 1 else op.Concat(*pieces, axis=0)


def _size(tracer: Tracer, dims: tuple[int | str | None, ...], known: dict[str, Array]) -> Array:
    size = tracer.constant(np.asarray(math.prod(dim for dim in dims if isinstance(dim, int)), np.int64))
    for dim in dims:
        if not isinstance(dim, int):
            size = size * op.Squeeze(known[str(dim)], [0])
    return size
