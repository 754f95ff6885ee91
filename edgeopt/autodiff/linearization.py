"""Forward mode, from the reverse mode that is there: derivatives along directions."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.autodiff.engine import backward
from edgeopt.tracing import Array, Tracer, op

__all__ = ["Linearization"]


class Linearization:
    """How a tensor of a graph answers small changes of others: the Jacobian, as a function of a direction.

    The vector-Jacobian product u ↦ Jᵀ·u is linear, so that its own vector-Jacobian product with v, by u, is J·v, and
    u does not matter (Townsend 2017, "A new trick for calculating Jacobian vector products"). What computes Jᵀ·u is in
    the graph for this alone, and goes with all else that reaches no output: what remains is forward mode.

    Args:
        tracer: Records into the graph that holds the forward computation.
        output: The tensor.
        wrt: What changes.

    Raises:
        UnsupportedOperatorError: Operators between them have no rule.
    """

    def __init__(self, tracer: Tracer, output: Array, wrt: Sequence[Array]) -> None:
        self._graph = tracer.graph
        # A tensor that nothing else reads.
        self._cotangent = op.Identity(xp.zeros_like(output))
        self._pulled = backward(tracer, {output.value: self._cotangent}, [array.value for array in wrt])

    def __call__(self, tracer: Tracer, directions: Sequence[Array]) -> Array:
        """The derivative of the output along the directions, one for each tensor; it has the shape of the output.

        Args:
            tracer: Records into the same graph, or into a body of it.
            directions: In the shapes of the tensors.

        Raises:
            UnsupportedOperatorError: Operators between them have no second derivative.
        """
        seeds: dict[ir.Value, Array] = {}
        for pulled, direction in zip(self._pulled, directions, strict=True):
            if pulled is not None:
                # Two tensors may have the very same cotangent.
                known = seeds.get(pulled.value)
                seeds[pulled.value] = direction if known is None else known + direction
        (found,) = backward(tracer, seeds, [self._cotangent.value], forward=self._graph)
        return xp.zeros_like(self._cotangent) if found is None else found
