"""Steps by the ratio of signal to variance: GENIE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.arithmetic.norms import finite_square
from edgeopt.optimizers.base import Arrays, Updated, static, zeros
from edgeopt.optimizers.ingredients import Ingredient, Normal, Uniform
from edgeopt.optimizers.rules.descent import Descent
from edgeopt.schedules import Schedule

__all__ = ["GENIE"]


@dataclass(frozen=True)
class GENIE(Descent):
    """GENIE (Cho, Kim and Kim, ICML 2025, PMLR 267): generalisation by the one-step generalisation ratio.

    ::

        a ← gamma·a + (1 - gamma)·g,  q ← gamma·q + (1 - gamma)·g²
        s = 1 - gammaᵗ,  r = (1 - gamma)·(2 - s)/((1 + gamma)·s),  ĝ = a/s
        var = (q/s - ĝ²)/(1 - r),  1e-8 where that is not above 0, and at the first update
        τ = tanh(min(1/var, 10))
        P = 1/(1 + max(r·var, 1e-8)/(ĝ² + 1e-8))
        d = Σ τ·|ĝ|·P / Σ τ                                    over the tensor
        θ ← θ - lr·(P·ĝ·τ + (1 - τ)·d·N)·M

    N are normal numbers and M is 1/(1 - p) with probability 1 - p and 0 otherwise. With `deterministic` there are
    neither noise nor mask: the step is lr·P·ĝ·τ. Slots `exp_avg` (a) and `exp_avg_sq` (q). Squares beyond 2⁻³² of the
    largest finite number count as that number.

    Semantics and defaults of the authors' code, whose `convergence_rate` is the rate here (its `lr` is never used);
    with three differences. At the first update its variance is rounding divided by zero, here 1e-8. It writes a copy of
    the parameter of its own over it, here there is none. A d without any τ is 0.
    """

    lr: Schedule | float = 0.015
    gamma: float = 0.95
    p: float = 0.4
    deterministic: bool = static(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("gamma", self.gamma)
        fraction("p", self.p)

    @property
    def elementwise(self) -> bool:
        """The size of the noise is one of the tensor."""
        return super().elementwise and self.deterministic

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the moments."""
        return zeros(param, "exp_avg", "exp_avg_sq")

    def ingredients(self, param: np.ndarray[Any, Any]) -> dict[str, Ingredient]:
        """Noise, and numbers that decide which elements move."""
        return {} if self.deterministic else {"noise": Normal(), "chance": Uniform()}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        gamma = hyper["gamma"]
        exp_avg = ema(xp, gamma, state["exp_avg"], grad)
        exp_avg_sq = ema(xp, gamma, state["exp_avg_sq"], finite_square(xp, grad))
        weight = 1.0 - gamma ** xp.astype(step, xp.float64)
        share = (1.0 - gamma) * (2.0 - weight) / ((1.0 + gamma) * weight)
        rest = xp.where(step == 1, xp.ones_like(share), 1.0 - share)

        mean = exp_avg / cast_like(xp, weight, param)
        square = finite_square(xp, mean)
        variance = (exp_avg_sq / cast_like(xp, weight, param) - square) / cast_like(xp, rest, param)
        least = xp.full_like(variance, 1e-8)
        variance = xp.where(xp.logical_and(variance > 0, step > 1), variance, least)
        trust = xp.tanh(xp.minimum(1.0 / xp.maximum(variance, xp.full_like(variance, 1e-30)), xp.full_like(mean, 10.0)))
        damped = 1.0 / (1.0 + xp.maximum(cast_like(xp, share, param) * variance, least) / (square + 1e-8))
        move = mean * damped * trust
        if not self.deterministic:
            total = xp.sum(trust)
            some = total > 0
            sigma = xp.where(some, xp.sum(xp.abs(move)) / xp.where(some, total, xp.ones_like(total)), 0.0 * total)
            kept = xp.astype(state["chance"] > cast_like(xp, hyper["p"], param), param.dtype)
            move = (move + (1.0 - trust) * sigma * state["noise"]) * kept / cast_like(xp, 1.0 - hyper["p"], param)
        return cast_like(xp, hyper["lr"], param) * move, {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
