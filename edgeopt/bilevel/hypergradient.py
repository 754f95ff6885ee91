"""The linear system of the hyper-gradient, A v = b, followed while A and b move."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from edgeopt.bilevel.lanczos import Lanczos
from edgeopt_runtime.errors import NonFiniteLossError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LinearSystem"]

_EPSILON = float(np.finfo(np.float64).eps)


class LinearSystem:
    """v ≈ A⁻¹ b, improved by one product with A at each update, and one more when a subspace starts.

    Args:
        v: The first solution.
        correct_residual: Whether a subspace corrects the solution that the one before it left, or makes all of it.
        reorthogonalize: Passed on to the Lanczos process.

    Attributes:
        v: The solution now.
    """

    def __init__(self, v: NDArray[np.float64], *, correct_residual: bool, reorthogonalize: bool) -> None:
        self.v = v
        self._correct_residual = correct_residual
        self._reorthogonalize = reorthogonalize
        self._base = self._image = np.zeros_like(v)
        self._subspace: Lanczos | None = None

    @property
    def size(self) -> int:
        """How many vectors the subspace has."""
        return 0 if self._subspace is None else self._subspace.size

    def update(
        self, apply: Callable[[NDArray[np.float64]], NDArray[np.float64]], b: NDArray[np.float64], most: int
    ) -> float:
        """Take A, as what multiplies it, and b as they are now; return the norm of b - A v, estimated.

        Raises:
            NonFiniteLossError: A has no inverse in the subspace.
        """
        if self._subspace is None or self._subspace.closed or self._subspace.size >= most:
            self._restart(apply, b, most)
        if self._subspace is None:
            return float(np.linalg.norm(b - self._image))
        self._subspace.extend(apply)
        try:
            correction = self._subspace.solve(b - self._image)
        except np.linalg.LinAlgError as error:
            raise NonFiniteLossError(
                "The Hessian of the lower problem is singular, so that its solution does not follow x smoothly. Add "
                "a penalty that makes the lower loss strongly convex, such as a small multiple of the sum of squares.",
                {},
            ) from error
        self.v = self._base + correction.solution
        return correction.residual

    def _restart(
        self, apply: Callable[[NDArray[np.float64]], NDArray[np.float64]], b: NDArray[np.float64], most: int
    ) -> None:
        self._base = self.v if self._correct_residual else np.zeros_like(self.v)
        # Zero needs no product.
        self._image = apply(self._base) if self._base.any() else np.zeros_like(self.v)
        residual = b - self._image
        size, rounding = np.linalg.norm(residual), _EPSILON * np.linalg.norm(b)
        # A residual that is rounding error has no direction worth following.
        solved = size <= rounding
        self._subspace = None if solved else Lanczos(residual, most, reorthogonalize=self._reorthogonalize)
        if solved:
            self.v = self._base
