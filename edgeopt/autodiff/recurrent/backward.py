"""The way back through a recurrent node: its directions one by one, and a Scan for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from edgeopt.autodiff.recurrent.direction import Direction, directions_of
from edgeopt.tracing import Array, op
from edgeopt.tracing.scanning import scan
from edgeopt.tracing.site import Site

__all__ = ["Arriving", "Cell", "Leaving", "differentiate", "in_steps", "through_weights"]


class Arriving(NamedTuple):
    """What flows back into one direction: of all outputs (time, batch, hidden), of the last states (batch, hidden)."""

    y: Array | None
    h: Array
    c: Array


class Leaving(NamedTuple):
    """What flows out of one direction: to input, weights, bias, initial states and peepholes."""

    x: Array | None = None
    w: Array | None = None
    r: Array | None = None
    b: Array | None = None
    h: Array | None = None
    c: Array | None = None
    p: Array | None = None


Cell = Callable[[Direction, Array, Arriving], Leaving]
_INPUTS = {"w": 1, "r": 2, "b": 3, "h": 5, "c": 6, "p": 7}


def differentiate(n: Site, cotangents: Sequence[Array | None], cell: Cell) -> list[Array | None]:
    """The cotangents of a node's inputs.

    Args:
        n: The node.
        cotangents: Of its outputs.
        cell: Differentiates one direction, given its states at the end of each step.
    """
    parts = []
    for direction in directions_of(n):
        with n.tracer.scope("backwards" if direction.backwards else "forwards"):
            parts.append(cell(direction, _states(n, direction), _arriving(n, direction, cotangents)))
    leaving: list[Array | None] = [None] * len(n.needs)
    inputs = [part.x for part in parts if part.x is not None]
    if inputs:
        total = inputs[0] if len(inputs) == 1 else inputs[0] + inputs[1]
        leaving[0] = op.Transpose(total, perm=[1, 0, 2]) if n.attr("layout", 0) else total
    for name, position in _INPUTS.items():
        if not _needs(n, position):
            continue
        axis = 1 if name in "hc" and n.attr("layout", 0) else 0
        found = [op.Unsqueeze(getattr(part, name), [axis]) for part in parts]
        joined = found[0] if len(found) == 1 else op.Concat(*found, axis=axis)
        leaving[position] = joined.with_shape(n.input(position).shape)
    return leaving


def _needs(n: Site, position: int) -> bool:
    return position < len(n.needs) and n.needs[position]


def _states(n: Site, direction: Direction) -> Array:
    time, batch, _ = direction.x.shape
    count = n.input(1).shape[0]
    shape = (batch, time, count, direction.hidden) if n.attr("layout", 0) else (time, count, batch, direction.hidden)
    return direction.states(n.output(0, n.x.dtype, shape))


def _arriving(n: Site, direction: Direction, cotangents: Sequence[Array | None]) -> Arriving:
    y, h, c = (*cotangents, None, None)[:3]
    if y is not None:
        y = direction.states(y)
        # Behind a sequence's end the output is a constant.
        y = y if direction.mask is None else y * direction.mask
    last = [direction.zeros() if g is None else direction.last(direction.state(g)) for g in (h, c)]
    return Arriving(y, *last)


def in_steps(
    direction: Direction,
    step: Callable[[Sequence[Array], Mapping[str, Array]], tuple[Sequence[Array], Sequence[Array]]],
    initial: Sequence[Array],
    sequences: Mapping[str, Array | None],
    *,
    reverse: bool,
) -> tuple[list[Array], list[Array]]:
    """A `scan` in the order of the direction or in reverse, whose step is given slices by name."""
    present = {name: array for name, array in sequences.items() if array is not None}
    return scan(
        lambda carried, slices: step(carried, dict(zip(present, slices, strict=True))),
        initial,
        list(present.values()),
        backwards=direction.backwards != reverse,
    )


def through_weights(direction: Direction, to_x: Array, to_r: Array, before: Array) -> Leaving:
    """Through the products of all steps.

    Args:
        direction: Says what is needed.
        to_x: Cotangents of the input's product, (time · batch, gates · hidden).
        to_r: Those of the state's product.
        before: The states that went into it, (time · batch, hidden).
    """
    n = direction.n
    x = direction.steps(op.Gemm(to_x, direction.w)) if _needs(n, 0) else None
    w = op.Gemm(to_x, direction.rows(direction.x), transA=1) if _needs(n, 1) else None
    r = op.Gemm(to_r, before, transA=1) if _needs(n, 2) else None
    b = None
    if _needs(n, 3):
        first = op.ReduceSum(to_x, [0], keepdims=0)
        b = op.Concat(first, first if to_r is to_x else op.ReduceSum(to_r, [0], keepdims=0), axis=0)
    return Leaving(x, w, r, b)
