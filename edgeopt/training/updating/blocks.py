"""Large parameters updated block by block, so that what a rule computes on its way stays in a processor's cache.

A rule is a dozen elementwise nodes. Of a large parameter each of them reads and writes memory, where it waits; of a
block that fits into the cache it does not. The blocks are the rows of a Scan, which give the same bits. What the rule
computes of numbers alone stands outside and is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgeopt import tracing as xp
from edgeopt.optimizers import Optimizer
from edgeopt.tracing import Array
from edgeopt.tracing.scanning import scan
from edgeopt.training.graphs.finiteness import finite_check

__all__ = ["BLOCK_SIZE", "InBlocks", "block_of", "update_in_blocks"]

#: The elements of a block: as few as the overhead of a Scan's step allows. Two to four times as many are as fast on one
#: thread; with several, ONNX Runtime shares the nodes of larger blocks among them, which costs more than it gains.
BLOCK_SIZE = 1 << 15

#: Parameters of fewer blocks are updated whole: they stay in a cache, and a Scan's steps cost as much as blocks save.
_FEWEST = 8


class InBlocks(NamedTuple):
    """What an update in blocks gives: new arrays have the shape (blocks, elements of a block).

    To bring them into the parameter's shape would be a copy each. As outputs of a graph they need not be, see
    docs/bundle-format.md.

    Attributes:
        param: The next parameter.
        slots: The next value of every slot; a slot that stays as it is comes out as the same object.
        changed: The slots that are computed in blocks.
        check: 0 if these and the parameter are finite, and NaN if not; None if they cannot be otherwise.
    """

    param: Array
    slots: dict[str, Array]
    changed: frozenset[str]
    check: Array | None


def block_of(rule: Optimizer, param: Array, state: Mapping[str, Array], size: int) -> int:
    """The number of elements of a block, or 0 where the parameter is to be updated whole.

    Args:
        rule: The update rule.
        param: The parameter.
        state: Its slots and ingredients.
        size: The number of elements that a block should have; 0 for no blocks.
    """
    shape = tuple(dim for dim in param.shape if isinstance(dim, int))
    count = math.prod(shape)
    alone = type(rule).update_all is Optimizer.update_all and rule.joins(np.zeros((1,) * param.ndim, param.dtype))
    alike = all(array.shape in (param.shape, ()) for array in state.values())
    if not (size and alone and alike and len(shape) == param.ndim and count >= _FEWEST * size):
        return 0
    # The divisor nearest to what is wanted; none within a factor of two is no block.
    lengths = [count // rows for rows in range(-(-count // (2 * size)), 2 * count // size + 1) if not count % rows]
    return min(lengths, key=lambda length: abs(math.log(length / size)), default=0)


def update_in_blocks(
    rule: Optimizer,
    arrays: tuple[Array, Array, Mapping[str, Array]],
    hyper: Mapping[str, Array],
    step: Array,
    *,
    block: int,
    to_check: Callable[[str | None, Array], Array],
) -> InBlocks:
    """Update a parameter.

    Args:
        rule: An elementwise rule.
        arrays: The parameter, its gradient, and its slots and ingredients.
        hyper: See `Optimizer.update`.
        step: The same.
        block: The number of elements of a block.
        to_check: What has to be finite of the next value of a slot, or, for None, of the parameter.
    """
    param, grad, state = arrays
    sequences = {key: array for key, array in state.items() if array.shape == param.shape}
    slots: dict[str, Array] = {}

    def one(_: Sequence[Array], slices: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        some_param, some_grad, *some = slices
        given = {**state, **dict(zip(sequences, some, strict=True))}
        moved, updated = rule.update(xp, some_param, some_grad, given, hyper, step)
        # What does not change, and scalars, which follow from what is outside.
        slots.update({key: state[key] if slot is given[key] else slot for key, slot in updated.items()})
        following = {key: slot for key, slot in updated.items() if key in sequences and slot is not given[key]}
        changed.extend(following)
        check = finite_check([to_check(None, moved), *(to_check(key, slot) for key, slot in following.items())])
        return [], [moved, *following.values(), *([] if check is None else [check])]

    changed: list[str] = []
    _, results = scan(one, [], [xp.reshape(array, [-1, block]) for array in (param, grad, *sequences.values())])
    moved, *following = results[: 1 + len(changed)]
    slots |= dict(zip(changed, following, strict=True))
    checks = results[1 + len(changed) :]
    return InBlocks(moved, slots, frozenset(changed), xp.sum(checks[0]) if checks else None)
