"""Adam whose step is rectified while its second moment is young."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Descent

__all__ = ["RAdam", "rectification"]


def rectification(xp: Namespace, beta2: Array, step: Array, threshold: float) -> tuple[Array, Array]:
    """Whether the second moment's variance is tractable at this step, and the factor that rectifies it.

    With n∞ = 2/(1 - β₂) - 1 and n = n∞ - 2t·β₂ᵗ/(1 - β₂ᵗ) the flag is n > threshold, and the factor, where it holds,
    √((n - 4)(n - 2)n∞ / ((n∞ - 4)(n∞ - 2)n)).
    """
    count = xp.astype(step, xp.float64)
    longest = 2.0 / (1.0 - beta2) - 1.0
    length = longest - 2.0 * count * beta2**count / bias_correction(xp, beta2, step)
    tractable = length > threshold
    # Where the flag is false the numbers below would be a root of a negative number; any positive one will do.
    safe = xp.where(tractable, length, longest)
    ratio = (safe - 4.0) * (safe - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * safe)
    return tractable, xp.sqrt(ratio)


@dataclass(frozen=True)
class RAdam(Descent):
    """Rectified Adam (Liu et al., ICLR 2020, arXiv:1908.03265).

    With m and v the moments of Adam, n∞ = 2/(1 - β₂) - 1 and n = n∞ - 2t·β₂ᵗ/(1 - β₂ᵗ)::

        r = √((n - 4)(n - 2)n∞ / ((n∞ - 4)(n∞ - 2)n))
        θ ← θ - lr/(1 - β₁ᵗ) · m · r·√(1 - β₂ᵗ)/(√v + eps)    where n > 5
        θ ← θ - lr/(1 - β₁ᵗ) · m                              before

    Slots `exp_avg` (m) and `exp_avg_sq` (v).

    Semantics and defaults of `torch.optim.RAdam`: the threshold is 5 (4 in the paper), and eps stands outside the bias
    correction.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the two moments."""
        return zeros(param, "exp_avg", "exp_avg_sq")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        tractable, factor = rectification(xp, hyper["beta2"], step, threshold=5.0)
        plain = hyper["lr"] / bias_correction(xp, hyper["beta1"], step)
        rectified = plain * factor * xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        rate = cast_like(xp, xp.where(tractable, rectified, plain), param)
        denominator = xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"], param)
        denominator = xp.where(tractable, denominator, xp.asarray(1.0, dtype=param.dtype))
        return rate * exp_avg / denominator, {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
