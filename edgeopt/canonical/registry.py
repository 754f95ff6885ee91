"""The tables of canonical form: how an operator is said with others, and how its older forms are said today.

A decomposition receives a node as a `Site` and returns arrays in place of its outputs::

    @decomposition("com.microsoft::QuickGelu")
    def quick_gelu(n):
        return n.x * op.Sigmoid(n.x * n.number("alpha", 1.702))

One array needs no tuple, and outputs that nobody uses may be left out. What it emits has to be an operator with a
gradient rule, or one that is decomposed in turn. Types and ranks of the node's inputs are known when it is asked.

An adapter does the same for the form that an operator had before some version of the standard opset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from edgeopt.tracing.rewriting import Replacement
from edgeopt.tracing.site import Site

__all__ = ["ADAPTERS", "DECOMPOSITIONS", "Adapter", "Decomposition", "adapter", "decomposition", "takes_every_node"]


class Decomposition(NamedTuple):
    """How an operator is said with others."""

    apply: Callable[[Site], Replacement]
    limits: Callable[[Site], str | None]


DECOMPOSITIONS: dict[str, Decomposition] = {}


class Adapter(NamedTuple):
    """How a node of an opset before `before` is said at the target opset."""

    before: int
    apply: Callable[[Site], Replacement]
    typed: bool


ADAPTERS: dict[str, list[Adapter]] = {}


def takes_every_node(_site: Site) -> None:
    """The decomposition is for every node."""


def decomposition(
    *operators: str, limits: Callable[[Site], str | None] = takes_every_node
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function for these operators.

    Args:
        operators: `"Name"` of the standard domain, or `"domain::Name"`.
        limits: Says of a node why it cannot be said with others, None where it can. Such a node stays as it is, and
            the reason is what the user reads if it has to be differentiated.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        DECOMPOSITIONS.update(dict.fromkeys(operators, Decomposition(function, limits)))
        return function

    return register


def adapter(*op_types: str, before: int, typed: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function for nodes of these operators whose opset is below `before`.

    Where several are registered for an operator, the one of the nearest bound brings a node all the way to the target.

    Args:
        op_types: Operators of the standard domain.
        before: The first opset that has the form which the target understands.
        typed: The function asks for types or ranks of the node's inputs.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for op_type in op_types:
            entries = ADAPTERS.setdefault(op_type, [])
            entries.append(Adapter(before, function, typed))
            entries.sort(key=lambda entry: entry.before)
        return function

    return register
