"""Adam whose step sizes are bounded: by a shrinking band, or by their own average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent

__all__ = ["AMSBound", "AdaBound", "AdaMod"]


def _step_sizes(xp: Namespace, second: Array, hyper: Arrays, step: Array) -> Array:
    """Adam's step size of each element, with eps outside the bias correction."""
    root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
    rate = hyper["lr"] * root_bias2 / bias_correction(xp, hyper["beta1"], step)
    return cast_like(xp, rate, second) / (xp.sqrt(second) + cast_like(xp, hyper["eps"], second))


@dataclass(frozen=True)
class AdaBound(Descent):
    """AdaBound (Luo et al., ICLR 2019, arXiv:1902.09843): from Adam to SGD along a narrowing band.

    With m and v the moments of Adam and f = final_lr·lr/base_lr::

        s = lr·√(1 - β₂ᵗ)/(1 - β₁ᵗ) / (√v + eps)
        θ ← θ - clip(s, f·(1 - 1/(gamma·t + 1)), f·(1 + 1/(gamma·t))) · m

    base_lr is the rate that the schedule is built around, so that the band follows the schedule. Slots `exp_avg` (m),
    `exp_avg_sq` (v) and, with `amsbound`, `max_exp_avg_sq`, the running maximum of v, which then takes its place.

    Semantics and defaults of the authors' package.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    final_lr: float = 0.1
    gamma: float = 1e-3
    amsbound: bool = False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the moments, and for the running maximum of the second with `amsbound`."""
        slots = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if self.amsbound else ("exp_avg", "exp_avg_sq")
        return zeros(param, *slots)

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        slots = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
        if self.amsbound:
            exp_avg_sq = slots["max_exp_avg_sq"] = xp.maximum(state["max_exp_avg_sq"], exp_avg_sq)
        sizes = _step_sizes(xp, exp_avg_sq, hyper, step)
        lower, upper = (cast_like(xp, bound, param) for bound in self._band(xp, hyper, step))
        return xp.minimum(xp.maximum(sizes, lower), upper) * exp_avg, slots

    def _band(self, xp: Namespace, hyper: Arrays, step: Array) -> tuple[Array, Array]:
        reached = hyper["gamma"] * xp.astype(step, xp.float64)
        final = hyper["final_lr"] * (hyper["lr"] / self.schedule.base if self.schedule.base else 1.0)
        return final * (1.0 - 1.0 / (reached + 1.0)), final * (1.0 + 1.0 / reached)


@dataclass(frozen=True)
class AMSBound(AdaBound):
    """AMSBound (Luo et al., ICLR 2019, arXiv:1902.09843): AdaBound with the running maximum of the second moment.

    Everything else is as in `AdaBound`, which has the equations. With v the second moment of Adam::

        v̂ ← max(v̂, v), which takes the place of v

    Semantics and defaults of the authors' package.
    """

    amsbound: bool = True


@dataclass(frozen=True)
class AdaMod(Descent):
    """AdaMod (Ding et al. 2019, arXiv:1910.12249): step sizes bounded by their own moving average.

    With m and v the moments of Adam::

        s = lr·√(1 - β₂ᵗ)/(1 - β₁ᵗ) / (√v + eps)
        a ← β₃·a + (1 - β₃)·s
        θ ← θ - min(s, a)·m

    Slots `exp_avg` (m), `exp_avg_sq` (v) and `exp_avg_lr` (a).

    Semantics and defaults of the authors' code and of torch_optimizer: weight decay shrinks the parameter first.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    beta3: float = 0.999
    eps: float = 1e-8
    decay: Decay = "before"

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the moments and the averaged step sizes."""
        return zeros(param, "exp_avg", "exp_avg_sq", "exp_avg_lr")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        sizes = _step_sizes(xp, exp_avg_sq, hyper, step)
        average = ema(xp, hyper["beta3"], state["exp_avg_lr"], sizes)
        slots: dict[str, Any] = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "exp_avg_lr": average}
        return xp.minimum(sizes, average) * exp_avg, slots
