"""Linear algebra from matrix products, for there are no factorisations in ONNX.

All of it computes in float64: what is squared here has twice the exponents, and small eigenvalues matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgeopt.array_types import Array, Namespace
from edgeopt.control import loop, repeat

__all__ = [
    "along_axis",
    "bounded",
    "eigen",
    "gram",
    "identity",
    "inverse_root",
    "largest_eigenvalue",
    "orthonormal",
    "transposed",
]

# Eigenvalues below machine epsilon cannot be told from zero; from there each iteration more than doubles what is left.
_NEWTON_ITERATIONS = 60
# Jacobi's method converges quadratically in the end.
_SWEEPS = 8
# The power 2¹² of a matrix.
_SQUARINGS = 12


def transposed(xp: Namespace, matrix: Array) -> Array:
    """The matrix with rows and columns exchanged."""
    return xp.permute_dims(matrix, (1, 0))


def identity(xp: Namespace, size: int) -> Array:
    """The identity matrix, float64."""
    return xp.asarray(np.eye(size))


def _front(ndim: int, axis: int) -> tuple[int, ...]:
    return (axis, *(other for other in range(ndim) if other != axis))


def _unfolded(xp: Namespace, tensor: Array, axis: int) -> Array:
    """A matrix whose rows are the slices of the tensor along the axis."""
    shape = tuple(int(size) for size in tensor.shape)
    return xp.reshape(xp.permute_dims(tensor, _front(len(shape), axis)), (shape[axis], math.prod(shape) // shape[axis]))


def gram(xp: Namespace, tensor: Array, axis: int) -> Array:
    """The inner products of the tensor's slices along the axis with each other."""
    rows = _unfolded(xp, tensor, axis)
    return xp.matmul(rows, transposed(xp, rows))


def along_axis(xp: Namespace, matrix: Array, tensor: Array, axis: int) -> Array:
    """The matrix applied to each fibre of the tensor along the axis."""
    shape = tuple(int(size) for size in tensor.shape)
    order = _front(len(shape), axis)
    product = xp.matmul(matrix, _unfolded(xp, tensor, axis))
    back = tuple(order.index(place) for place in range(len(shape)))
    return xp.permute_dims(xp.reshape(product, tuple(shape[place] for place in order)), back)


def bounded(xp: Namespace, x: Array) -> Array:
    """x, at most 2⁻²⁰ of the square root of the largest finite number, so that sums of products stay finite."""
    most = xp.asarray(math.sqrt(float(xp.finfo(x.dtype).max)) * 2.0**-20, dtype=x.dtype)
    return xp.maximum(xp.minimum(x, most), -most)


def _power(xp: Namespace, matrix: Array, exponent: int) -> Array:
    """A positive power, by squaring."""
    if exponent == 1:
        return matrix
    half = _power(xp, matrix, exponent // 2)
    square = xp.matmul(half, half)
    return xp.matmul(square, matrix) if exponent % 2 else square


def largest_eigenvalue(xp: Namespace, matrix: Array) -> Array:
    """That of a symmetric float64 matrix without negative eigenvalues, 0-d.

    The quotient tr(A·Pᵏ)/tr(Pᵏ) with P = A/tr(A) and k = 2¹²: it is too small by a share of at most log(size)/k, where
    many eigenvalues are nearly the largest, and exact where few are.
    """
    trace = _trace(xp, matrix)
    power = matrix / xp.where(trace > 0, trace, xp.ones_like(trace))
    for _ in range(_SQUARINGS):
        square = xp.matmul(power, power)
        trace = _trace(xp, square)
        power = square / xp.where(trace > 0, trace, xp.ones_like(trace))
    return _trace(xp, xp.matmul(matrix, power))


def _trace(xp: Namespace, matrix: Array) -> Array:
    return xp.sum(matrix * identity(xp, int(matrix.shape[0])))


def inverse_root(xp: Namespace, matrix: Array, root: int) -> Array:
    """A^(-1/root) of a symmetric matrix without negative eigenvalues.

    By the coupled Newton iteration of Guo and Higham (SIAM J. Matrix Anal. Appl. 28, 2006): with X = z^(1/root)·1 and
    M = z·A, the steps ::

        T = ((root + 1)·1 - M)/root
        X ← X·T
        M ← T^root·M

    takes M to the identity and X to the root. z is one over the largest sum of a row, so that all eigenvalues of M
    begin in (0, 1]. Before, rounding of the largest eigenvalue is added to the diagonal, since it may have made the
    smallest ones negative. Computed in float64, and given in the dtype of the matrix.
    """
    size, dtype = int(matrix.shape[0]), matrix.dtype
    one = identity(xp, size)
    exact = xp.astype(matrix, xp.float64)
    largest = xp.max(xp.sum(xp.abs(exact), axis=1))
    exact = exact + 2.0 * float(xp.finfo(dtype).eps) * largest * one

    def factor(m: Array) -> Array:
        return ((root + 1.0) * one - m) / root

    def newton(state: Sequence[Array]) -> list[Array]:
        x, m = state
        t = factor(m)
        product = xp.matmul(_power(xp, t, root), m)
        return [xp.matmul(x, t), 0.5 * (product + transposed(xp, product))]

    z = 1.0 / largest
    start = [z ** (1.0 / root) * one, z * exact]
    # The last step needs no M; and ONNX Runtime 1.17 does not bear a Scan of which one result is not read.
    x, m = repeat(xp, _NEWTON_ITERATIONS - 1, newton, start)
    return xp.astype(xp.matmul(x, factor(m)), dtype)


def orthonormal(xp: Namespace, matrix: Array) -> Array:
    """The columns made orthonormal one after the other, as the Q of a QR factorisation has them, up to signs.

    By Gram-Schmidt, twice for each column (Giraud et al., Numer. Math. 101, 2005). The columns have to be linearly
    independent. float64.
    """
    rows, columns = (int(size) for size in matrix.shape)
    scaled = matrix / xp.max(xp.abs(matrix))

    def next_column(state: Sequence[Array], slices: Sequence[Array]) -> list[Array]:
        (basis,), (column, place) = state, slices
        vector = xp.reshape(column, (rows, 1))
        for _ in range(2):
            vector = vector - xp.matmul(basis, xp.matmul(transposed(xp, basis), vector))
            vector = vector / xp.sqrt(xp.sum(vector * vector))
        return [basis + xp.matmul(vector, xp.reshape(place, (1, columns)))]

    # The place of each column as a row of the identity.
    return loop(xp, next_column, [xp.zeros_like(scaled)], [transposed(xp, scaled), identity(xp, columns)])[0]


def eigen(xp: Namespace, matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues in no order, and eigenvectors as columns, of a small symmetric matrix; float64.

    By Jacobi's rotations, of all pairs of a round robin at once (Brent and Luk, SIAM J. Sci. Stat. Comput. 6, 1985),
    each round as matrix products. A matrix of odd size gets a row and a column of zeros first, and so an eigenvector
    more, which is zero in all places of the matrix.
    """
    size = int(matrix.shape[0])
    even = size + size % 2
    border = np.eye(size, even)
    turned = xp.matmul(xp.asarray(border.T), xp.matmul(xp.astype(matrix, xp.float64), xp.asarray(border)))
    first, second = (xp.asarray(np.eye(even)[start::2]) for start in (0, 1))
    # Who meets whom next: the first stays, the others move on around the table.
    upper, lower = list(range(0, even, 2)), list(range(1, even, 2))
    places = zip([*upper[:1], *lower[:1], *upper[1:-1]][: len(upper)], [*lower[1:], *upper[-1:]], strict=True)
    seats = xp.asarray(np.eye(even)[:, [place for pair in places for place in pair] if even > 2 else [0, 1]])

    def rotation(state: Sequence[Array]) -> list[Array]:
        a, vectors = state
        rows = xp.matmul(first, a)
        p, cross = xp.sum(rows * first, axis=1), xp.sum(rows * second, axis=1)
        q = xp.sum(xp.matmul(second, a) * second, axis=1)
        crossing = xp.not_equal(cross, xp.zeros_like(cross))
        ratio = (q - p) / (2.0 * xp.where(crossing, cross, xp.ones_like(cross)))
        ratio = xp.maximum(xp.minimum(ratio, xp.full_like(ratio, 1e150)), xp.full_like(ratio, -1e150))
        side = xp.where(ratio >= 0, xp.ones_like(ratio), -xp.ones_like(ratio))
        tangent = xp.where(crossing, side / (xp.abs(ratio) + xp.sqrt(1.0 + ratio * ratio)), xp.zeros_like(ratio))
        cosine = 1.0 / xp.sqrt(1.0 + tangent * tangent)
        cosine, sine = xp.expand_dims(cosine, axis=1), xp.expand_dims(tangent * cosine, axis=1)
        above, below = cosine * first + sine * second, cosine * second - sine * first
        turn = xp.matmul(transposed(xp, first), above) + xp.matmul(transposed(xp, second), below)
        turn = xp.matmul(turn, seats)
        return [xp.matmul(transposed(xp, turn), xp.matmul(a, turn)), xp.matmul(vectors, turn)]

    start = [turned, xp.asarray(np.eye(even)) + 0.0 * turned]
    turned, vectors = repeat(xp, _SWEEPS * max(even - 1, 1), rotation, start)
    return xp.sum(turned * xp.asarray(np.eye(even)), axis=1), xp.matmul(xp.asarray(border), vectors)
