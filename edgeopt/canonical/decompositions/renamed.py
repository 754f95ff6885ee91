"""Operators that another one says as it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgeopt import tracing as xp
from edgeopt.canonical.registry import decomposition
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def _attributes(n: Site) -> dict[str, Any]:
    return {name: attribute.value for name, attribute in n.node.attributes.items()}


@decomposition("com.microsoft::Pad", "com.microsoft::Trilu", "com.microsoft::GatherND")
def of_the_standard(n: Site) -> Array:
    """The standard domain has it under the same name."""
    inputs = list(n.inputs)
    if n.node.op_type == "Pad":
        inputs[1] = op.Reshape(n.input(1), [-1])
        if n.has(2) and n.input(2).ndim:
            inputs[2] = op.Squeeze(n.input(2), [0])
    result: Array = n.tracer.emit(n.node.op_type, *inputs, **_attributes(n))
    return result


@decomposition("com.microsoft::GridSample")
def grid_sample(n: Site) -> Array:
    """The modes have other names."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}
    given = _attributes(n)
    return op.GridSample(*n.inputs, **{**given, "mode": mode.get(given.get("mode", "bilinear"), "nearest")})


@decomposition("com.microsoft::Range")
def range_(n: Site) -> Array:
    """The step may be left out, and numbers may come as vectors of one element."""
    start, limit = (_number(n.input(position)) for position in (0, 1))
    step = _number(n.input(2)) if n.has(2) else n.tracer.constant(1, n.x.dtype)
    return op.Range(start, limit, step)


def _number(x: Array) -> Array:
    return op.Squeeze(x, [0]) if x.ndim else x


def _axis_problem(n: Site) -> str | None:
    return "its axis is not known before the run" if n.constant(1) is None else None


@decomposition("com.microsoft::ExpandDims", limits=_axis_problem)
def expand_dims(n: Site) -> Array:
    """Unsqueeze."""
    axis = n.constant(1)
    return op.Unsqueeze(n.x, [int(np.reshape(axis, ())) if axis is not None else 0])


@decomposition("CastLike")
def cast_like(n: Site) -> Array:
    """Cast, to a type that is known."""
    saturate = n.attr("saturate", 1)
    if saturate:
        return xp.astype(n.x, n.input(1).dtype)
    to = n.input(1).value.dtype
    return op.Cast(n.x, to=int(to) if to is not None else 1, saturate=0)


@decomposition("Compress")
def compress(n: Site) -> Array:
    """The elements where a condition holds, gathered by their places."""
    places = op.Reshape(op.NonZero(n.input(1)), [-1])
    axis = n.attr("axis")
    if axis is None:
        return op.Gather(op.Reshape(n.x, [-1]), places)
    return op.Gather(n.x, places, axis=axis)
