"""A choice between two computations, of which only one is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgeopt.tracing.array import Array

__all__ = ["cond"]

_Branch = Callable[..., Sequence[Array]]


def cond(condition: Array, then: _Branch, otherwise: _Branch, *operands: Array) -> list[Array]:
    """The results of `then(*operands)` where the scalar condition holds, else those of `otherwise(*operands)`.

    Both give as many results, of the same types and shapes. They may use any array of the graph besides.
    """
    tracer = condition.tracer
    bodies = []
    for name, branch in (("then", then), ("otherwise", otherwise)):
        inner = tracer.subgraph(name)
        results = branch(*(inner.wrap(operand.value) for operand in operands))
        for array in results:
            inner.result(array)
        bodies.append(inner.graph)
    count = len(bodies[0].outputs)
    return list(tracer.emit("If", condition, outputs=count, then_branch=bodies[0], else_branch=bodies[1]))
