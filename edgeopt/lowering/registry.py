"""The tables of lowerings: how an operator is said with others.

A lowering receives a node as a `Site` and returns arrays in place of its outputs::

    @lowering("Cos", when=is_double)
    def cos(n):
        return xp.sin(n.x + math.pi / 2)

One array needs no tuple, and outputs that nobody uses may be left out. What it emits may itself be lowered again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import onnx_ir as ir

from edgeopt.tracing.rewriting import Replacement
from edgeopt.tracing.site import Site

__all__ = ["LOWERINGS", "Lowering", "is_double", "lowering"]


class Lowering(NamedTuple):
    """One way to say an operator with others, and the nodes it is for."""

    when: Callable[[Site], bool]
    apply: Callable[[Site], Replacement]


LOWERINGS: dict[str, list[Lowering]] = {}


def lowering(*op_types: str, when: Callable[[Site], bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function for the nodes of these operators that satisfy a predicate."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for op_type in op_types:
            LOWERINGS.setdefault(op_type, []).append(Lowering(when, function))
        return function

    return register


def is_double(n: Site) -> bool:
    """Whether the node's first input is float64."""
    return n.has(0) and n.x.value.dtype == ir.DataType.DOUBLE
