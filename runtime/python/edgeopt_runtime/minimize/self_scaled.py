"""Quasi-Newton methods with a dense inverse Hessian that is scaled at every update."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from edgeopt_runtime.errors import MinimizeError
from edgeopt_runtime.minimize.method import Move

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DenseInverse", "Factors", "al_baali", "broyden", "oren_luenberger", "unscaled"]

# (h, b, number of unknowns) to (tau, theta). h = yᵀHy / yᵀs and b = sᵀBs / yᵀs with B the inverse of H; by the
# Cauchy-Schwarz inequality h b >= 1. Theta is the parameter of Broyden's family: 0 is BFGS, 1 is DFP.
Factors = Callable[[float, float, int], tuple[float, float]]


def unscaled(h: float, b: float, size: int) -> tuple[float, float]:
    """Plain BFGS."""
    return 1.0, 0.0


def oren_luenberger(h: float, b: float, size: int) -> tuple[float, float]:
    """BFGS scaled by tau = yᵀs / sᵀBs; S. Oren and D. Luenberger, "Self-scaling variable metric algorithms", 1974."""
    return 1.0 / b, 0.0


def al_baali(h: float, b: float, size: int) -> tuple[float, float]:
    """The same, but never scaling up; M. Al-Baali, "Numerical experience with a class of self-scaling quasi-Newton
    algorithms", 1998.
    """
    return min(1.0, 1.0 / b), 0.0


def broyden(h: float, b: float, size: int) -> tuple[float, float]:
    """The self-scaled Broyden update that J. Urbán, P. Stefanou and J. Pons call SSBroyden2 (arXiv 2405.04230).

    Theta aims at (1 - b)/b, within the interval in which the update keeps H positive definite and its condition
    bounded; tau follows M. Al-Baali and H. Khalfan, "Wide interval for efficient self-scaling quasi-Newton
    algorithms", 2005.
    """
    a = max(h * b - 1.0, 0.0)
    nearest = min(1.0, h * (1.0 - math.sqrt(a / (1.0 + a))))
    lower = (nearest - 1.0) / a if a else 0.0
    theta = max(lower, min(1.0 / nearest, (1.0 - b) / b))
    sigma = 1.0 + a * theta
    # With one unknown a is zero, and so is the exponent's claim on it.
    spread = sigma ** (1.0 / (1.0 - size)) if size > 1 else 1.0
    shrink = min(1.0, 1.0 / b)
    tau = min(shrink * spread, sigma) if theta <= 0 else shrink * min(spread, 1.0 / theta)
    return tau, theta


class DenseInverse:
    """The inverse Hessian H as a matrix in float64, updated from each step s and gradient change y.

    With rho = 1/yᵀs, v = rho s - Hy/yᵀHy and phi = (1 - theta)/(1 + a theta), a = h b - 1::

        H ← (H - Hy yᵀH / yᵀHy + phi yᵀHy v vᵀ) / tau + rho s sᵀ

    which satisfies H y = s for every tau and phi. Pairs with yᵀs <= 0 are left out. The first update has
    tau = h/(1 + a theta), so that H gets the scale of the problem before it gets its shape (Nocedal and Wright,
    equation 6.20). Source: arXiv 2405.04230.

    Args:
        size: Number of unknowns N; the matrix takes 8 N² bytes, and as many again during an update.
        factors: Gives tau and theta.
        initial_scaling: Whether the first update has its own tau.
        max_parameters: Largest N.

    Raises:
        MinimizeError: There are more unknowns.
    """

    scales_first_step: ClassVar[bool] = True

    def __init__(self, size: int, factors: Factors, initial_scaling: bool, max_parameters: int) -> None:
        if size > max_parameters:
            raise MinimizeError(
                f"This method keeps a dense matrix: {size} trainable parameters need {8 * size**2 / 2**30:.1f} GiB, "
                f"and the limit is {max_parameters} parameters. Train fewer (`trainable=...` at the export), raise "
                '`max_parameters`, or use method="lbfgs", whose memory grows with N only.'
            )
        self.inverse = np.eye(size)
        self._factors = factors
        self._scale_next = initial_scaling

    def direction(self, x: NDArray[Any], gradient: NDArray[Any]) -> NDArray[Any]:
        """-H g, in float64."""
        product: NDArray[Any] = self.inverse @ gradient
        return -product

    def learn(self, move: Move) -> None:
        """Update the matrix."""
        step = move.change.astype(np.float64)
        change = move.after.astype(np.float64) - move.before
        product = float(change @ step)
        if product <= np.finfo(np.float64).eps * math.sqrt(float(change @ change) * float(step @ step)):
            return
        rho = 1.0 / product
        image = self.inverse @ change
        length = float(change @ image)
        # s = t p with p = -H g, so Bs = -t g.
        h, b = rho * length, -move.step * rho * float(step @ move.before)
        tau, theta = self._factors(h, b, step.size)
        share = 1.0 + (h * b - 1.0) * theta
        if self._scale_next:
            tau, self._scale_next = h / share, False
        phi = (1.0 - theta) / share
        v = rho * step - image / length
        columns = np.stack([image, v, step], axis=1)
        weights = np.array([-1.0 / (length * tau), phi * length / tau, rho])
        self.inverse /= tau
        self.inverse += (columns * weights) @ columns.T
