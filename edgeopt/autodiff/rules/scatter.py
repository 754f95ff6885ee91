"""Operators that write updates into a tensor, one after the other where places repeat.

With a reduction, an element is combined with all the updates that reach it: the rules are those of the reduction over
this set. Source of the conventions for ties and zeros: `torch.Tensor.scatter_reduce`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from edgeopt import tracing as xp
from edgeopt.autodiff.registry import rule
from edgeopt.autodiff.rules.elementwise import indicator
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


class _Places(NamedTuple):
    """The places that a node writes to: how to write there, and to read from there."""

    write: Callable[[Array, Array, str], Array]
    read: Callable[[Array], Array]


def _points(n: Site) -> _Places:
    """Of ScatterND."""
    indices = n.input(1)
    return _Places(
        lambda x, u, reduction: op.ScatterND(x, indices, u, reduction=reduction).with_shape(x.shape),
        lambda x: op.GatherND(x, indices).with_shape(n.input(2).shape),
    )


def _elements(n: Site) -> _Places:
    """Of ScatterElements."""
    indices, axis = n.input(1), n.attr("axis", 0)
    return _Places(
        lambda x, u, reduction: op.ScatterElements(x, indices, u, axis=axis, reduction=reduction).with_shape(x.shape),
        lambda x: op.GatherElements(x, indices, axis=axis).with_shape(n.input(2).shape),
    )


@rule("ScatterND")
def scatter_nd(n: Site, g: Array) -> tuple[Array, None, Array | None]:
    """Slices written at the points of a list."""
    return _through(n, _points(n), g)


@rule("ScatterElements")
def scatter_elements(n: Site, g: Array) -> tuple[Array, None, Array | None]:
    """Elements written along one axis."""
    return _through(n, _elements(n), g)


def _through(n: Site, places: _Places, g: Array) -> tuple[Array, None, Array | None]:
    """By the reduction.

    Without one, ONNX requires places to differ; where they repeat all the same, every update gets the cotangent of its
    place, as in PyTorch, although only the last is seen.
    """
    reduction = n.attr("reduction", "none")
    if reduction == "add":
        return g, None, places.read(g) if n.needs[2] else None
    if reduction == "none":
        to_x = places.write(g, xp.zeros_like(n.input(2)), "none")
        return to_x, None, places.read(g) if n.needs[2] else None
    return _through_product(n, places, g) if reduction == "mul" else _through_extremum(n, places, g)


def _through_product(n: Site, places: _Places, g: Array) -> tuple[Array, None, Array | None]:
    """The product of all the others: of all but the zeros where this one is the only zero."""
    x, updates = n.x, n.input(2)
    to_x = g * places.write(xp.ones_like(x), updates, "mul")
    if not n.needs[2]:
        return to_x, None, None
    zero = indicator(updates == xp.zeros_like(updates), g)
    zeros = places.read(places.write(xp.zeros_like(x), zero, "add"))
    others_are_none, one_is_zero = indicator(zeros < 0.5, g), indicator(xp.abs(zeros - 1.0) < 0.5, g)
    without_zeros = updates + zero
    product = places.read(places.write(x, without_zeros, "mul")) / without_zeros
    return to_x, None, places.read(g) * product * (zero * one_is_zero + (1.0 - zero) * others_are_none)


def _through_extremum(n: Site, places: _Places, g: Array) -> tuple[Array, None, Array | None]:
    """Equal extreme elements share the cotangent equally, whether they were there or came as updates."""
    kept = indicator(n.x == n.y, g)
    taken = indicator(n.input(2) == places.read(n.y), g)
    share = g / places.write(kept, taken, "add")
    return share * kept, None, places.read(share) * taken if n.needs[2] else None
