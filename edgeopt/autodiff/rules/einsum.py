"""Einstein summation: the cotangent of an operand is a summation of the output's with the other operands."""

from __future__ import annotations

from collections import Counter

from edgeopt.autodiff.arrays import expand_like
from edgeopt.autodiff.registry import rule
from edgeopt.tracing import Array, op
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


def _problem(n: Site) -> str | None:
    operands, _ = _terms(n)
    if any(len(set(term)) < len(term) for term in operands):
        return "an operand has a letter twice; take its diagonal first"
    sizes: dict[str, set[object]] = {}
    for position, term in enumerate(operands):
        for letter, dim in zip(term, n.input(position).shape, strict=True):
            sizes.setdefault(letter, set()).add(dim)
    stretched = any(1 in dims and len(dims) > 1 for dims in sizes.values())
    return "an operand is broadcast along a letter that others have too" if stretched else None


@rule("Einsum", limits=_problem)
def einsum(n: Site, g: Array) -> list[Array | None]:
    """Letters that only this operand has were summed away: its cotangent is the same along them."""
    operands, output = _terms(n)
    cotangents: list[Array | None] = []
    for position, term in enumerate(operands):
        if not n.needs[position]:
            cotangents.append(None)
            continue
        others = [i for i in range(len(operands)) if i != position]
        known = set(output).union(*(operands[i] for i in others))
        kept = "".join(letter for letter in term if letter in known)
        equation = ",".join([output, *(operands[i] for i in others)]) + "->" + kept
        result = op.Einsum(g, *(n.input(i) for i in others), equation=equation)
        missing = [axis for axis, letter in enumerate(term) if letter not in known]
        if missing:
            result = expand_like(op.Unsqueeze(result, missing), n.input(position))
        cotangents.append(result.with_shape(n.input(position).shape))
    return cotangents
