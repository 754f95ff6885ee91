"""Einstein summation: the cotangent of an operand is a summation of the output's with the other operands."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.arrays import expand_like
from edgeopt.autodiff.registry import rule
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import Dim
from edgeopt.tracing.site import Site

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _terms(n: Site) -> tuple[list[str], str]:
    """The letters of each operand and of the output; those that an ellipsis stands for are spelled out."""
    equation = n.attr("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    operands = left.split(",")
    ranks = [n.input(i).ndim - len(term.replace("...", "")) for i, term in enumerate(operands)]
    free = [letter for letter in _LETTERS if letter not in equation]
    longest = "".join(free[: max(ranks)])
    spelled = [
        term.replace("...", longest[len(longest) - rank :] if rank else "")
        for term, rank in zip(operands, ranks, strict=True)
    ]
    if arrow:
        return spelled, right.replace("...", longest)
    counts = Counter("".join(operands).replace(".", ""))
    return spelled, longest + "".join(sorted(letter for letter, count in counts.items() if count == 1))


@rule("Einsum")
def einsum(n: Site, g: Array) -> list[Array | None]:
    """Letters that only this operand has were summed away: its cotangent is the same along them.

    A letter that it has twice took its diagonal, and one along which it was stretched is summed.
    """
    operands, output = _terms(n)
    cotangents: list[Array | None] = []
    for position, term in enumerate(operands):
        if not n.needs[position]:
            cotangents.append(None)
            continue
        others = [i for i in range(len(operands)) if i != position]
        factors = [(output, g), *((operands[i], n.input(i)) for i in others)]
        known = {letter for letters, _ in factors for letter in letters}
        kept = "".join(letter for letter in dict.fromkeys(term) if letter in known)
        equation = ",".join(letters for letters, _ in factors) + "->" + kept
        result = op.Einsum(*(factor for _, factor in factors), equation=equation)
        result = result.with_shape(tuple(_size(letter, factors) for letter in kept))
        cotangents.append(_spread(result, kept, term, n.input(position)))
    return cotangents


def _size(letter: str, factors: list[tuple[str, Array]]) -> Dim:
    """The size along a letter: that of the factors that are not stretched along it."""
    dims = [x.shape[axis] for letters, x in factors for axis, other in enumerate(letters) if other == letter]
    return next((dim for dim in dims if dim != 1), 1)


def _spread(result: Array, kept: str, term: str, operand: Array) -> Array:
    """What has one dimension for each letter that was kept, in the shape of an operand with these letters."""
    first = [term.index(letter) for letter in kept]
    added = [axis for axis in range(len(term)) if axis not in first]
    if added:
        result = op.Unsqueeze(result, added)
    for axis in added:
        if term.index(term[axis]) != axis:
            result = result * _same_place(operand, term.index(term[axis]), axis, result.dtype)
    stretched = [axis for axis, dim in enumerate(operand.shape) if dim == 1 and result.shape[axis] != 1]
    if stretched:
        result = op.ReduceSum(result, stretched, keepdims=1)
    return expand_like(result, operand).with_shape(operand.shape)


def _same_place(operand: Array, axis: int, other: int, dtype: Any) -> Array:
    """1 on the diagonal of two axes, else 0, with dimensions of one along the rest."""
    size = op.Squeeze(op.Shape(operand, start=axis, end=axis + 1), [0])
    zero, one = (operand.tracer.constant(np.int64(number)) for number in (0, 1))
    places = op.Range(zero, size, one).with_shape((operand.shape[axis],))
    there, here = (op.Unsqueeze(places, [i for i in range(operand.ndim) if i != own]) for own in (axis, other))
    return xp.astype(there == here, dtype)
