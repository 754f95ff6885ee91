"""The Lanczos process, one vector at a time, for a matrix that may move between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Correction", "Lanczos"]

_EPSILON = float(np.finfo(np.float64).eps)


class Correction(NamedTuple):
    """A solution of A Δ = r in the subspace.

    Attributes:
        solution: Δ = Q T⁻¹ Qᵀ r.
        residual: The norm of r - A Δ, as far as A Q = Q T + ω eᵀ holds: exact for a matrix that stays.
    """

    solution: NDArray[np.float64]
    residual: float


class Lanczos:
    """Orthonormal vectors Q of a Krylov space of a symmetric matrix A, and the tridiagonal T = Qᵀ A Q.

    From q_1 = start / ‖start‖:  u = A q_j - b_j q_{j-1};  a_j = q_jᵀ u;  ω = u - a_j q_j;  b_{j+1} = ‖ω‖;
    q_{j+1} = ω / b_{j+1}.  T has a on its diagonal and b beside it.

    Args:
        start: The first direction; not zero.
        most: How many vectors the subspace may have.
        reorthogonalize: Take from each ω what it has left, by rounding or since A moved, of earlier vectors.
    """

    def __init__(self, start: NDArray[np.float64], most: int, *, reorthogonalize: bool = True) -> None:
        self.most = min(most, start.size)
        self._reorthogonalize = reorthogonalize
        self._rows = np.empty((self.most, start.size))
        # ω and b of the vector to come.
        self._omega, self._beta = start, float(np.linalg.norm(start))
        self._scale = 0.0
        self._diagonal: list[float] = []
        self._beside: list[float] = []

    @property
    def size(self) -> int:
        """How many vectors there are."""
        return len(self._diagonal)

    @property
    def basis(self) -> NDArray[np.float64]:
        """Q, one vector a column."""
        return self._rows[: self.size].T

    @property
    def tridiagonal(self) -> NDArray[np.float64]:
        """T."""
        return np.diag(self._diagonal) + np.diag(self._beside, 1) + np.diag(self._beside, -1)

    @property
    def closed(self) -> bool:
        """Whether no vector can be added: there are `most`, or the subspace is invariant, ω being rounding error."""
        return self.size >= self.most or (self.size > 0 and self._beta <= 8 * _EPSILON * self._scale)

    def extend(self, apply: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> None:
        """Add a vector; `apply` multiplies A, as it is now, with one."""
        q = self._omega / self._beta
        image = apply(q)
        omega = image.copy()
        if self.size:
            self._beside.append(self._beta)
            omega -= self._beta * self._rows[self.size - 1]
        alpha = float(q @ omega)
        omega -= alpha * q
        self._rows[self.size] = q
        self._diagonal.append(alpha)
        if self._reorthogonalize:
            # Twice is enough (Parlett, The Symmetric Eigenvalue Problem, section 6.9).
            for _ in range(2):
                omega -= (self._rows[: self.size] @ omega) @ self._rows[: self.size]
        self._omega, self._beta = omega, float(np.linalg.norm(omega))
        self._scale = max(self._scale, float(np.linalg.norm(image)))

    def solve(self, r: NDArray[np.float64]) -> Correction:
        """A Δ = r in the subspace.

        Raises:
            numpy.linalg.LinAlgError: T is singular.
        """
        rows = self._rows[: self.size]
        inside = rows @ r
        coefficients = np.linalg.solve(self.tridiagonal, inside)
        left = r - inside @ rows - coefficients[-1] * self._omega
        return Correction(coefficients @ rows, float(np.linalg.norm(left)))
