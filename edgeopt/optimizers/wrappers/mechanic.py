"""Mechanic: an optimizer around another one that finds the scale of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, positive
from edgeopt.optimizers.arithmetic.distance import group_norm, total
from edgeopt.optimizers.base import Arrays, Collective, GroupArrays, Optimizer, UpdatedAll, static
from edgeopt.optimizers.wrappers.wrapper import Wrapper, beside

__all__ = ["Mechanic"]

_BY_BETA = ("mechanic_slope", "mechanic_sum_sq", "mechanic_reward", "mechanic_scale")


def _climbs(optimizer: Optimizer) -> bool:
    """Whether the optimizer, or the one inside of it, goes uphill."""
    inner = getattr(optimizer, "inner", None)
    return _climbs(inner) if isinstance(inner, Optimizer) else bool(getattr(optimizer, "maximize", False))


@dataclass(frozen=True)
class Mechanic(Collective, Wrapper):
    """Mechanic around another optimizer (Cutkosky, Defazio and Mehta, NeurIPS 2023, arXiv:2306.00144).

    The inner optimizer says where to go from θ, by u; how far all of it goes is learned by a bet for each of n rates
    βᵢ = 1 - 10⁻ⁱ. With sums and norms over all parameters of a group, S = Σ sᵢ and λ = `regularization`::

        p = Δ·S/(S + eps)
        h = Σ⟨g + λ·S·‖g‖/(‖θ‖ + eps)·θ, p⟩
        rᵢ ← βᵢ·rᵢ + min(max(h, -mᵢ), mᵢ)·sᵢ
        mᵢ ← max(βᵢ·mᵢ, |h| + eps)
        vᵢ ← βᵢ²·vᵢ + h²
        sᵢ ← (s₀/n·mᵢ + max(rᵢ, 0))/(√vᵢ + eps)
        Δ ← p - u
        θ ← θ₀ - S·Δ                              with the S of after

    The learning rate of the inner optimizer is a factor, 1 or a schedule from 1 downwards. Its own weight decay belongs
    to u. Slots are those of the inner optimizer, `mechanic_start` (θ₀) and `mechanic_offset` (Δ), and, shared, vectors
    of float64: `mechanic_slope` (m), `mechanic_sum_sq` (v), `mechanic_reward` (r) and `mechanic_scale` (s), which
    begins as s₀ = `s_init`. The hyperparameters are called `mechanic.regularization` and `mechanic.eps`; the others are
    the inner optimizer's.

    Semantics and defaults of `optax.contrib.mechanize`, which finds Δ from θ₀ - θ each time instead of keeping it: the
    same but for rounding, which in float32 would be a hundredth of it at first. An average of the parameters goes
    around it, not inside.

    Raises:
        ConfigurationError: A number out of its range, or `inner` is no optimizer.
    """

    regularization: float = 1e-2
    eps: float = 1e-8
    s_init: float = static(1e-6)
    num_betas: int = static(6)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("regularization", self.regularization, 0.0)
        positive("eps", self.eps)
        positive("s_init", self.s_init)
        at_least("num_betas", self.num_betas, 1)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the slots of the inner optimizer, the parameter, and zeros for the way from there."""
        return beside(super().init(param), {"mechanic_start": param.copy(), "mechanic_offset": np.zeros_like(param)})

    def init_shared(self, params: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the shared slots of the inner optimizer, and those of the scale."""
        own = {slot: np.zeros(self.num_betas) for slot in _BY_BETA}
        own["mechanic_scale"] = np.full(self.num_betas, self.s_init)
        return beside(super().init_shared(params), own)

    def hyperparameters(self) -> dict[str, float]:
        """Return the numbers of the inner optimizer, and those of the scale."""
        own = {"mechanic.regularization": float(self.regularization), "mechanic.eps": float(self.eps)}
        return beside(super().hyperparameters(), own)

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take a step of the inner optimizer, and go in its direction as far as the scale says."""
        params, grads, states, shared = group
        inner, slots, common = self.inner.update_all(xp, group, hyper, step)
        scale, eps = xp.sum(shared["mechanic_scale"]), hyper["mechanic.eps"]
        uphill = {name: -grad for name, grad in grads.items()} if _climbs(self.inner) else grads
        size = group_norm(xp, list(params.values()))
        pull = hyper["mechanic.regularization"] * scale * group_norm(xp, list(uphill.values())) / (size + eps)
        known = scale / (scale + eps)
        before, slopes = {}, []
        for name, param in params.items():
            before[name] = cast_like(xp, known, param) * states[name]["mechanic_offset"]
            slopes.append(xp.sum((uphill[name] + cast_like(xp, pull, param) * param) * before[name]))
        scales = self._bets(xp, total(xp, slopes), shared, eps)
        factor = xp.sum(scales["mechanic_scale"])
        moved = {}
        for name, param in params.items():
            start, offset = states[name]["mechanic_start"], before[name] - (inner[name] - param)
            moved[name] = start - cast_like(xp, factor, param) * offset
            slots[name] = {**slots[name], "mechanic_start": start, "mechanic_offset": offset}
        return moved, slots, {**common, **scales}

    def _bets(self, xp: Namespace, slope: Array, shared: Arrays, eps: Array) -> dict[str, Array]:
        """The shared slots of the scale after a step along which the loss rises so much."""
        betas = xp.asarray(1.0 - 0.1 ** np.arange(1.0, self.num_betas + 1.0))
        most, square, reward, scale = (shared[slot] for slot in _BY_BETA)
        reward = betas * reward + xp.minimum(xp.maximum(slope * xp.ones_like(most), -most), most) * scale
        most = xp.maximum(betas * most, xp.abs(slope) + eps)
        square = betas * betas * square + slope * slope
        wealth = self.s_init / self.num_betas * most + xp.maximum(reward, xp.zeros_like(reward))
        return dict(zip(_BY_BETA, (most, square, reward, wealth / (xp.sqrt(square) + eps)), strict=True))
