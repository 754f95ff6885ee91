"""What ONNX has no operator for: the adjugate of a matrix, and with it determinant and inverse."""

from __future__ import annotations

import numpy as np

from edgeopt import tracing as xp
from edgeopt.tracing.array import Array
from edgeopt.tracing.operators import op

__all__ = ["adjugate"]


def adjugate(a: Array, size: int) -> tuple[Array, Array]:
    """The adjugate of matrices (..., size, size) of static size, and their determinants (...).

    By size - 1 matrix products, for singular matrices too, and with derivatives of every order. Rounding grows with the
    size: it is meant for small matrices. With M₁ = 1, each step takes c = -tr(A M) / k and M ← A M + c; the last M is
    the adjugate but for its sign. Source: Faddeev and Leverrier, as in Householder, "The theory of matrices in
    numerical analysis", section 6.7.
    """
    identity = np.eye(size, dtype=a.dtype)
    m: Array | None = None
    for step in range(1, size):
        product = a if m is None else op.MatMul(a, m)
        m = product - _trace(product, identity) * (identity / step)
    # After these steps M is the adjugate times (-1)^(size - 1).
    sign = -1.0 if size % 2 == 0 else 1.0
    if m is None:
        return xp.ones_like(a), op.Squeeze(a, [-2, -1])
    adjoint = m * sign
    determinant = _trace(op.MatMul(a, adjoint), identity) * (1.0 / size)
    return adjoint, op.Squeeze(determinant, [-2, -1])


def _trace(x: Array, identity: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Array:
    """The trace of each matrix, as a matrix of one element."""
    return op.ReduceSum(x * identity, [-2, -1], keepdims=1)
