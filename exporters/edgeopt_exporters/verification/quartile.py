"""A forward graph that draws the lower quartile instead of a random number, so that it can be compared."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from edgeopt import tracing as xp
from edgeopt.canonical.copies import copied
from edgeopt.lowering.random import RANDOM
from edgeopt.tracing import Array, Tracer
from edgeopt.tracing.randomness import is_random
from edgeopt.tracing.rewriting import replace_node
from edgeopt.tracing.site import Site
from edgeopt.training.forward import ForwardGraph

__all__ = ["NORMAL_QUARTILE", "QUARTILE", "with_quartiles"]

#: A draw is in the lower quarter with this probability.
QUARTILE = 0.25
#: Where the cumulative distribution of the standard normal one reaches it.
NORMAL_QUARTILE = -0.6744897501960817


class _Quartiles:
    """In the place of `edgeopt.lowering.RandomStreams`: the same number everywhere."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def bits(self, ordinal: int, like: Array) -> Array:
        # Dropout keeps an element where the word reaches the ratio, Bernoulli where a number is below the probability
        # to keep: one is the other seen from above.
        return self._fill(like, np.int32(math.floor((1.0 - QUARTILE) * 2**32) - 2**31))

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
