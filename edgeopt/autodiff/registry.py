"""The tables of reverse mode: which operator has a rule, which has derivative zero, which is refused and why.

A rule maps the cotangents of a node's outputs to the cotangents of its inputs::

    @rule("Tanh")
    def tanh(n, g):
        return g * (1 - n.y * n.y)

It receives the node as a `Site` and one cotangent for each output (None where nothing flows back), and returns one
cotangent for each input, in order, None for an input that has none; trailing ones may be left out, and a single one
needs no tuple. The engine takes care of the rest: broadcasting (for operators registered with `broadcasts=True`, where
a rule returns cotangents of the output's shape), accumulation, inputs that need no gradient, and types.

Rules emit only operators that have rules themselves, so that gradients can be differentiated again.

Operators of the standard domain go by their names, all others by domain and name: `com.microsoft::Sampling`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from edgeopt.tracing import Array
from edgeopt.tracing.site import PROBLEM, Site, qualified_name

__all__ = [
    "REFUSED",
    "RULES",
    "ZERO_DERIVATIVE",
    "Refusal",
    "Rule",
    "no_limits",
    "qualified_name",
    "refuse",
    "regular",
    "rule",
    "site_problem",
    "zero_derivative",
]

Cotangents: TypeAlias = "Array | Sequence[Array | None] | None"


class Rule(NamedTuple):
    """How cotangents pass one operator."""

    apply: Callable[..., Cotangents]
    broadcasts: bool
    limits: Callable[[Site], str | None]
    singular: Callable[[Site], bool]


class Refusal(NamedTuple):
    """Why an operator is not differentiated, and what to do instead where that is known."""

    reason: str
    alternative: str = ""

    def __str__(self) -> str:
        return f"{self.reason}; {self.alternative}" if self.alternative else self.reason


RULES: dict[str, Rule] = {}
ZERO_DERIVATIVE: dict[str, str] = {}
REFUSED: dict[str, Refusal] = {}


def no_limits(_site: Site) -> None:
    """The rule treats every node."""


def regular(_site: Site) -> bool:
    """The derivative is finite wherever the value is."""
    return False


def rule(
    *op_types: str,
    broadcasts: bool = False,
    limits: Callable[[Site], str | None] = no_limits,
    singular: Callable[[Site], bool] = regular,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the rule of these operators.

    Args:
        op_types: Operators of the standard domain.
        broadcasts: The operator broadcasts its inputs, and the rule's cotangents have the output's shape.
        limits: Says of a node why the rule cannot treat it, None where it can.
        singular: Says of a node whether its derivative may be infinite or NaN at points that people's models reach,
            as that of a root at 0. Rules that let only some elements pass then select them (see `rules.passing`).
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for op_type in op_types:
            RULES[op_type] = Rule(function, broadcasts, limits, singular)
        return function

    return register


def zero_derivative(reason: str, *op_types: str) -> None:
    """Register operators through which no gradient flows by their nature."""
    ZERO_DERIVATIVE.update(dict.fromkeys(op_types, reason))


def refuse(reason: str, *op_types: str, alternative: str = "") -> None:
    """Register operators that are not differentiated, with the reason and the way out that the user will read."""
    REFUSED.update(dict.fromkeys(op_types, Refusal(reason, alternative)))


def site_problem(site: Site) -> str | None:
    """Why a node cannot be differentiated, None if it can."""
    name = qualified_name(site.node)
    if name in RULES:
        return RULES[name].limits(site)
    found = site.node.metadata_props.get(PROBLEM)
    return found or str(REFUSED.get(name, "no gradient rule is known for it"))
