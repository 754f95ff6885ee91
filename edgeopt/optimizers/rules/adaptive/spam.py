"""Adam that bears spikes of the gradient: SPAM and StableSPAM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, fraction
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.distance import group_norm
from edgeopt.optimizers.base import Arrays, Updated, static, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent

__all__ = ["SPAM", "StableSPAM"]


def _since(xp: Namespace, step: Array, every: int) -> tuple[Array, Array]:
    """The number of the update, and that of updates since the last restart, in float64."""
    count = xp.astype(step, xp.float64)
    return count, count - xp.floor(count / every) * every


def _restarted(xp: Namespace, state: Arrays, since: Array) -> tuple[Array, Array]:
    """The moments, which begin anew at each restart."""
    first, second = (xp.where(since < 0.5, xp.zeros_like(state[slot]), state[slot]) for slot in _MOMENTS)
    return first, second


_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class SPAM(Descent):
    """SPAM (Huang et al., ICLR 2025, arXiv:2501.06842): spikes are clipped, and momentum starts anew from time to time.

    r is the number of updates since the last restart, t mod `update_proj_gap`::

        m, v ← 0                                              where r = 0: at the updates every, 2·every, …
        g ← min(max(g, -√(threshold·v)), √(threshold·v))      where r ≥ `settle`, with the v of before
        m ← β₁·m + (1 - β₁)·g
        v ← β₂·v + (1 - β₂)·g²
        w = 1 - 0.99·(1 + cos(π·(r + 1)/(warmup_steps + 1)))/2    where r < warmup_steps, after a restart; else 1
        θ ← θ - w·lr·√(1 - β₂ᵗ)/(1 - β₁ᵗ)·m/(√v + eps)

    Slots `exp_avg` (m) and `exp_avg_sq` (v). A threshold of 0 does not clip.

    Semantics and defaults of pytorch_optimizer with a density of 1, which is its default: without the paper's sparse
    momentum, whose state would be as large here as the dense one.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    threshold: float = static(5000.0)
    settle: int = static(20)
    update_proj_gap: int = static(500)
    warmup_steps: int = static(50)
    decay: Decay = "after"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("threshold", self.threshold, 0.0)
        at_least("settle", self.settle, 0)
        at_least("update_proj_gap", self.update_proj_gap, 1)
        at_least("warmup_steps", self.warmup_steps, 0)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the moments."""
        return zeros(param, *_MOMENTS)

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        count, since = _since(xp, step, self.update_proj_gap)
        exp_avg, exp_avg_sq = _restarted(xp, state, since)
        if self.threshold:
            limit = math.sqrt(self.threshold) * xp.sqrt(exp_avg_sq)
            clipped = xp.minimum(xp.maximum(grad, -limit), limit)
            grad = xp.where(since >= float(self.settle), clipped, grad)
        exp_avg = ema(xp, hyper["beta1"], exp_avg, grad)
        exp_avg_sq = ema(xp, hyper["beta2"], exp_avg_sq, grad * grad)
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        rate = hyper["lr"] * root_bias2 / bias_correction(xp, hyper["beta1"], step) * self._warm(xp, count, since)
        direction = exp_avg / (xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"], param))
        return cast_like(xp, rate, param) * direction, {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}

    def _warm(self, xp: Namespace, count: Array, since: Array) -> Array:
        """The factor w."""
        rising = 1.0 - 0.495 * (1.0 + xp.cos(math.pi / (self.warmup_steps + 1.0) * (since + 1.0)))
        cold = xp.logical_and(count >= float(self.update_proj_gap), since < float(self.warmup_steps))
        return xp.where(cold, rising, xp.ones_like(rising))


@dataclass(frozen=True)
class StableSPAM(Descent):
    """StableSPAM (Huang et al. 2025, arXiv:2502.17055): the size of the gradient is averaged, and clipped to averages.

    M, a and b are numbers for each tensor; k is the number of updates since momentum started anew, at the updates
    every, 2·every, …, where k = 1::

        M ← θ·M + (1 - θ)·max|g|,  M̂ = M/(1 - θᵗ)
        g ← g·M̂/max|g|                                       where |g| > M̂
        a ← γ₁·a + (1 - γ₁)·‖g‖
        b ← γ₂·b + (1 - γ₂)·‖g‖²
        g ← g/‖g‖·(a/(1 - γ₁ᵗ))/(√(b/(1 - γ₂ᵗ)) + eps)
        m ← β₁·m + (1 - β₁)·g                                 with m, v ← 0 before, where k = 1
        v ← β₂·v + (1 - β₂)·g²
        p ← p - lr/(1 - β₁ᵏ)·m/(√(v/(1 - β₂ᵏ)) + eps)

    p being the parameter, θ = `theta`, γ₁ = `gamma1` and γ₂ = `gamma2`. Where the gradient of a tensor is zero, only M
    changes. Slots `exp_avg` (m), `exp_avg_sq` (v), `norm_avg` (a), `norm_sq_avg` (b) and `max_abs_grad` (M).

    Semantics and defaults of pytorch_optimizer, without its decay of the betas, which is off by default.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    gamma1: float = 0.7
    gamma2: float = 0.9
    theta: float = 0.999
    update_proj_gap: int = static(1000)
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("gamma1", "gamma2", "theta"):
            fraction(name, getattr(self, name))
        at_least("update_proj_gap", self.update_proj_gap, 1)

    @property
    def elementwise(self) -> bool:
        """Each tensor has a size of its own."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros."""
        sizes = {slot: np.zeros(()) for slot in ("norm_avg", "norm_sq_avg", "max_abs_grad")}
        return {**zeros(param, *_MOMENTS), **sizes}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        peak = xp.astype(xp.max(xp.abs(grad)), xp.float64)
        largest = ema(xp, hyper["theta"], state["max_abs_grad"], peak)
        active = peak > 0
        one = xp.ones_like(peak)
        # Clipping to M̂ what is divided by its peak: the largest element is M̂ itself or less.
        limit = xp.minimum(largest / bias_correction(xp, hyper["theta"], step) / xp.where(active, peak, one), one)
        shape = grad / cast_like(xp, xp.where(active, peak, one), grad)
        shape = xp.where(xp.abs(shape) > cast_like(xp, limit, grad), shape * cast_like(xp, limit, grad), shape)
        inner = group_norm(xp, [shape])
        size = inner * peak
        norm_avg = ema(xp, hyper["gamma1"], state["norm_avg"], size)
        norm_sq_avg = ema(xp, hyper["gamma2"], state["norm_sq_avg"], size * size)
        mean = norm_avg / bias_correction(xp, hyper["gamma1"], step)
        root = xp.sqrt(norm_sq_avg / bias_correction(xp, hyper["gamma2"], step))
        scaled = cast_like(xp, mean / (root + hyper["eps"]) / xp.where(active, inner, one), grad) * shape

        count, since = _since(xp, step, self.update_proj_gap)
        # Before the first restart the updates count from 1, and after it from the restart.
        number = xp.where(count >= float(self.update_proj_gap), since + 1.0, count)
        restarted = dict(zip(_MOMENTS, _restarted(xp, state, since), strict=True))
        exp_avg = ema(xp, hyper["beta1"], restarted["exp_avg"], scaled)
        exp_avg_sq = ema(xp, hyper["beta2"], restarted["exp_avg_sq"], scaled * scaled)
        rate = cast_like(xp, hyper["lr"] / (1.0 - hyper["beta1"] ** number), param)
        root = xp.sqrt(exp_avg_sq) / cast_like(xp, xp.sqrt(1.0 - hyper["beta2"] ** number), param)
        delta = rate * exp_avg / (root + cast_like(xp, hyper["eps"], param))
        slots = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "norm_avg": norm_avg, "norm_sq_avg": norm_sq_avg}
        kept = {slot: xp.where(active, value, {**state, **restarted}[slot]) for slot, value in slots.items()}
        return xp.where(active, delta, xp.zeros_like(delta)), {**kept, "max_abs_grad": largest}
