"""Graphs that draw the lower quartile instead of a random number, so that they can be compared."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from edgeopt import tracing as xp
from edgeopt.canonical.copies import copied
from edgeopt.lowering import kind_of_draw
from edgeopt.lowering.random import RANDOM
from edgeopt.tracing import Array, Tracer
from edgeopt.tracing.randomness import is_random
from edgeopt.tracing.rewriting import replace_node
from edgeopt.tracing.site import Site
from edgeopt.training.forward import ForwardGraph
from edgeopt.training.names import SEED

__all__ = ["NORMAL_QUARTILE", "QUARTILE", "drawing_quartiles", "with_quartiles"]

#: A draw is in the lower quarter with this probability.
QUARTILE = 0.25
#: Where the cumulative distribution of the standard normal one reaches it.
NORMAL_QUARTILE = -0.6744897501960817


# Dropout keeps an element where the word reaches the ratio, Bernoulli where a number is below the probability to keep:
# one is the other seen from above.
_WORD = math.floor((1.0 - QUARTILE) * 2**32) - 2**31
_DRAWN: dict[str, NDArray[Any]] = {
    "bits": np.asarray([_WORD], np.int32),
    "uniform": np.asarray([QUARTILE], np.float64),
    "normal": np.asarray([NORMAL_QUARTILE], np.float64),
}


def drawing_quartiles(graph: bytes) -> bytes | None:
    """A finished graph in which every draw is followed by the quartile, which everything reads instead.

    Returns:
        The graph; None if the seed still decides what comes out, for then something else was made of a draw.
    """
    model = onnx.load_model_from_string(graph)
    quartiles: set[str] = set()
    _replace_draws(model.graph, quartiles)
    outputs = [value.name for value in model.graph.output]
    return None if SEED in _sources(model.graph, outputs, quartiles) else model.SerializeToString()


def _replace_draws(graph: onnx.GraphProto, quartiles: set[str]) -> None:
    nodes = []
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _replace_draws(attribute.g, quartiles)
        nodes.append(node)
        for position, name in enumerate(node.output):
            if (kind := kind_of_draw(name)) is None:
                continue
            quartiles.add(name)
            drawn, shape, filled = (f"{name}.{part}" for part in ("drawn", "shape", "filled"))
            node.output[position] = drawn
            value = onnx.numpy_helper.from_array(_DRAWN[kind])
            nodes += [
                onnx.helper.make_node("Shape", [drawn], [shape]),
                onnx.helper.make_node("ConstantOfShape", [shape], [filled], value=value),
                onnx.helper.make_node("CastLike", [filled, drawn], [name]),
            ]
    if len(nodes) > len(graph.node):
        del graph.node[:]
        graph.node.extend(nodes)


def _sources(graph: onnx.GraphProto, outputs: Iterable[str], known: set[str]) -> set[str]:
    """Everything that outputs of a graph are computed from, but for what some known tensors are."""
    wanted = set(outputs)
    for node in reversed(graph.node):
        if wanted.isdisjoint(node.output) or not known.isdisjoint(node.output):
            continue
        wanted.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                wanted |= _sources(attribute.g, [value.name for value in attribute.g.output], known)
    return wanted


class _Quartiles:
    """In the place of `edgeopt.lowering.RandomStreams`: the same number everywhere."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def bits(self, ordinal: int, like: Array) -> Array:
        return self._fill(like, np.int32(_WORD))

    def uniform(self, ordinal: int, like: Array, dtype: np.dtype[Any]) -> Array:
        return self._fill(like, np.asarray(QUARTILE, dtype))

    def normal(self, ordinal: int, like: Array, dtype: np.dtype[Any]) -> Array:
        return self._fill(like, np.asarray(NORMAL_QUARTILE, dtype))

    def _fill(self, like: Array, value: Any) -> Array:
        filled: Array = xp.full_like(like, value.item(), dtype=value.dtype)
        return filled


def with_quartiles(forward: ForwardGraph) -> ForwardGraph:
    """A copy whose random nodes, of the kinds that `edgeopt.lowering` knows, give the lower quartile."""
    model = copied(forward.model)
    tracer = Tracer(model.graph)
    streams: Any = _Quartiles(tracer)
    for node in list(model.graph):
        if node.op_type in RANDOM and is_random(node):
            replace_node(tracer, node, RANDOM[node.op_type](Site(tracer, node), streams, 0))
    model.graph.sort()
    return replace(forward, model=model)
