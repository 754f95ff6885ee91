"""Limited-memory BFGS."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from edgeopt_runtime.minimize.method import Move

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LimitedMemory"]

# Pairs with less curvature than this are not remembered, as in torch.
LEAST_CURVATURE = 1e-10


class LimitedMemory:
    """The inverse Hessian as the last few pairs of steps and gradient changes.

    D. Liu and J. Nocedal, "On the limited memory BFGS method for large scale optimization", 1989: the two-loop
    recursion from H0 = (yᵀs / yᵀy) I. Memory: 2 ``history`` vectors.

    Args:
        history: Number of pairs that are kept.
    """

    scales_first_step: ClassVar[bool] = True

    def __init__(self, history: int) -> None:
        # Step, gradient change, and one over their product.
        self._pairs: deque[tuple[NDArray[Any], NDArray[Any], float]] = deque(maxlen=history)
        self._scale = 1.0

    def direction(self, x: NDArray[Any], gradient: NDArray[Any]) -> NDArray[Any]:
        """-H g."""
        q = -gradient
        shares = []
        for step, change, rho in reversed(self._pairs):
            share = float(np.dot(step, q)) * rho
            q -= share * change
            shares.append(share)
        q *= self._scale
        for (step, change, rho), share in zip(self._pairs, reversed(shares), strict=True):
            q += step * (share - float(np.dot(change, q)) * rho)
        return q

    def learn(self, move: Move) -> None:
        """Remember a pair, and forget the oldest."""
        change = move.after - move.before
        curvature = float(np.dot(change, move.change))
        if curvature > LEAST_CURVATURE:
            self._pairs.append((move.change, change, 1.0 / curvature))
            self._scale = curvature / float(np.dot(change, change))
