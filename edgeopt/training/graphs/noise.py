"""Random numbers for update rules, drawn by the bundle's own generator."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from edgeopt import tracing as xp
from edgeopt.errors import TracingError
from edgeopt.lowering import RandomStreams
from edgeopt.optimizers import Ingredient, Noise, Normal, Rademacher, Tangents, Uniform
from edgeopt.tracing import Array, op
from edgeopt.training.graphs.builder import GraphBuilder
from edgeopt.training.names import SEED, STEP, measurement_name
from edgeopt.training.updating.groups import UpdateGroup

__all__ = ["draw", "draw_tangents"]

# Apart from what a graph draws otherwise, and from what an update draws that replaced another.
_STREAM = np.int64(2 << 32)


def draw(ingredient: Ingredient, parameter: Array) -> Array:
    """Fresh random numbers in the parameter's dtype.

    The nodes emitted are random ones of ONNX, which `edgeopt.lowering` turns into the seeded generator.

    Raises:
        TracingError: The ingredient is not a kind of noise that is known here.
    """
    like = _like(ingredient, parameter)
    if isinstance(ingredient, Normal):
        return op.RandomNormalLike(like)
    if isinstance(ingredient, Uniform):
        return op.RandomUniformLike(like)
    if isinstance(ingredient, Rademacher):
        return 1.0 - 2.0 * xp.astype(op.RandomUniformLike(like) < 0.5, parameter.dtype)
    raise TracingError(f"{ingredient!r} is no kind of noise.")


def _like(ingredient: Ingredient, parameter: Array) -> Array:
    if not isinstance(ingredient, Noise) or ingredient.shape is None:
        return parameter
    zero = parameter.tracer.constant(np.zeros((), parameter.dtype))
    return op.Expand(zero, np.asarray(ingredient.shape, np.int64))


def draw_tangents(builder: GraphBuilder, groups: Iterable[UpdateGroup]) -> dict[str, Array]:
    """The `Tangents` of all parameters, by key: the same in each graph that runs for one update."""
    wanted = [
        (measurement_name(name, parameter), need, parameter)
        for group in groups
        for parameter, needed in group.ingredients.items()
        for name, need in needed.items()
        if isinstance(need, Tangents)
    ]
    if not wanted:
        return {}
    with builder.tracer.scope("tangents"):
        # The number of the update takes the place of the number of the run.
        streams = RandomStreams(builder.tracer, builder.state(SEED) + _STREAM, builder.state(STEP), len(wanted))
        return {
            key: streams.normal(ordinal, _like(need, builder.state(parameter)), builder.state(parameter).dtype)
            for ordinal, (key, need, parameter) in enumerate(wanted)
        }
