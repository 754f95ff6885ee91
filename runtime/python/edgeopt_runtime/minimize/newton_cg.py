"""Newton's method with conjugate gradients for the linear system."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from edgeopt_runtime.minimize.method import Move
from edgeopt_runtime.minimize.objective import Objective

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TruncatedNewton"]


class TruncatedNewton:
    """Solves (H + damping I) p = -g by conjugate gradients, from products of the Hessian H with vectors alone.

    J. Nocedal and S. Wright, Numerical Optimization, 2nd edition, algorithm 7.1: stops when the residual is at most
    min(1/2, √‖g‖) ‖g‖, which makes the convergence superlinear, or at a direction in which the loss does not curve
    upwards; then what has been found so far is the answer, and -g if that is nothing.

    Args:
        objective: Applies the Hessian.
        damping: Added to the diagonal of the Hessian.
        max_cg: Most products for one direction; None means 20 for each unknown, as in SciPy.
    """

    scales_first_step: ClassVar[bool] = False

    def __init__(self, objective: Objective, damping: float, max_cg: int | None) -> None:
        self._objective = objective
        self._damping = damping
        self._most = 20 * objective.size if max_cg is None else max_cg

    def direction(self, x: NDArray[Any], gradient: NDArray[Any]) -> NDArray[Any]:
        """The truncated Newton step, in float64."""
        residual = gradient.astype(np.float64)
        norm = math.sqrt(residual @ residual)
        enough = min(0.5, math.sqrt(norm)) * norm
        solution = np.zeros_like(residual)
        search = -residual
        square = norm**2
        for count in range(self._most):
            image = self._objective.hessian_vector(x, search) + self._damping * search
            curvature = float(search @ image)
            if curvature <= np.finfo(np.float64).eps * float(search @ search):
                return solution if count else search
            length = square / curvature
            solution += length * search
            residual += length * image
            before, square = square, float(residual @ residual)
            if math.sqrt(square) <= enough:
                break
            search = search * (square / before) - residual
        return solution

    def learn(self, move: Move) -> None:
        """Nothing: the Hessian is asked anew at every point."""
