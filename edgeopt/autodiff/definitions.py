"""Rules that need no derivation: the operator is written as an array program, and the program is differentiated.

The forward graph keeps the operator itself, for which runtimes have one kernel. Of the program only what the gradient
reads is left in the graph in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from edgeopt.autodiff.engine import backward
from edgeopt.autodiff.registry import no_limits, rule
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site

__all__ = ["by_definition"]


class _SetApart(Site):
    """The node with the inputs that need a cotangent set apart from the graph before it.

    One input may depend on another there, and the program is differentiated with respect to each by itself.
    """

    @cached_property
    def inputs(self) -> tuple[Array | None, ...]:
        """Identities of the inputs that need a cotangent, the others as they are."""
        return tuple(
            op.Identity(x) if x is not None and needed else x
            for x, needed in zip(super().inputs, self.needs, strict=True)
        )


def by_definition(
    *op_types: str, limits: Callable[[Site], str | None] = no_limits
) -> Callable[[Callable[[Site], Array]], Callable[[Site], Array]]:
    """Register operators by the decorated program, which returns the first output of the node it is given.

    Args:
        op_types: Operators of the standard domain.
        limits: Says of a node why the program does not equal it, None where it does.
    """

    def register(definition: Callable[[Site], Array]) -> Callable[[Site], Array]:
        def apply(n: Site, g: Array, *_others: Array | None) -> Sequence[Array | None]:
            apart = _SetApart(n.tracer, n.node, n.needs)
            y = definition(apart).with_shape(n.y.shape)
            wanted = [x.value for x, needed in zip(apart.inputs, n.needs, strict=True) if x is not None and needed]
            found = iter(backward(n.tracer, {y.value: g}, wanted))
            return [
                next(found) if x is not None and needed else None
                for x, needed in zip(apart.inputs, n.needs, strict=True)
            ]

        # The rule belongs to the file that states it.
        apply.__module__, apply.__doc__ = definition.__module__, definition.__doc__
        rule(*op_types, limits=limits)(apply)
        return definition

    return register
