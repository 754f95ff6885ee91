"""Branches and loops of array programs.

The Array API has neither. Where arrays are values, as in numpy and torch, Python's own do; the tracer has `cond` and
`scan`, which become one If and one Scan; under a compiler that hides values (jax) both branches are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgeopt.array_types import Array, Namespace

__all__ = ["choose", "loop", "repeat"]

_Arrays = Sequence[Array]


def choose(
    xp: Namespace,
    condition: Array,
    then: Callable[..., _Arrays],
    otherwise: Callable[..., _Arrays],
    *operands: Array,
) -> list[Array]:
    """The results of `then(*operands)` where the 0-d condition holds, else those of `otherwise(*operands)`.

    Only what is asked for is computed, unless the values of arrays are hidden.
    """
    if hasattr(condition, "tracer"):
        return list(xp.cond(condition, then, otherwise, *operands))
    try:
        holds = bool(condition)
    except TypeError:  # under jit there is no truth value
        pairs = zip(then(*operands), otherwise(*operands), strict=True)
        return [xp.where(condition, new, old) for new, old in pairs]
    return list(then(*operands) if holds else otherwise(*operands))


def loop(
    xp: Namespace,
    step: Callable[[_Arrays, _Arrays], _Arrays],
    carried: _Arrays,
    sequences: _Arrays,
) -> list[Array]:
    """What is carried after `step(carried, slices)` has seen each slice of the sequences along their first axis."""
    if hasattr(carried[0], "tracer"):
        tracer = carried[0].tracer
        traced = [tracer.constant(sequence) for sequence in sequences]
        last, _ = xp.scan(lambda state, slices: (step(state, slices), []), carried, traced)
        return list(last)
    for position in range(int(sequences[0].shape[0])):
        carried = step(carried, [sequence[position] for sequence in sequences])
    return list(carried)


def repeat(xp: Namespace, count: int, step: Callable[[_Arrays], _Arrays], carried: _Arrays) -> list[Array]:
    """What is carried after so many steps."""
    if hasattr(carried[0], "tracer"):
        ticks = carried[0].tracer.constant(np.zeros(count, np.float32))
        return loop(xp, lambda state, _: step(state), carried, [ticks])
    for _ in range(count):
        carried = step(carried)
    return list(carried)
