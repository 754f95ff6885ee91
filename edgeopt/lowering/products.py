"""Products with a vector on the right.

ONNX Runtime, 1.17 and 1.32 alike, fuses a Transpose with the MatMul that reads it, and forgets to transpose where the
other operand is a vector: Wᵀu comes out as W u, without a word if W is square.
"""

from __future__ import annotations

from edgeopt.lowering.registry import lowering
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


def _has_vector_on_the_right(n: Site) -> bool:
    # Not only behind a Transpose: ONNX Runtime moves those about before it fuses them.
    return n.input(1).ndim == 1 and n.x.ndim > 1


@lowering("MatMul", when=_has_vector_on_the_right)
def matmul(n: Site) -> Array:
    """With the vector as a matrix of one column."""
    column = op.Unsqueeze(n.input(1), [1])
    return op.Squeeze(op.MatMul(n.x, column), [-1])
