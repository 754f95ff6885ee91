"""Prodigy: Adam that finds its own learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, fraction, positive
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.distance import growing, total
from edgeopt.optimizers.base import Arrays, Collective, GroupArrays, Rule, UpdatedAll, static
from edgeopt.schedules import Schedule

__all__ = ["Prodigy"]


@dataclass(frozen=True)
class Prodigy(Collective, Rule):
    """Prodigy (Mishchenko and Defazio, ICML 2024, arXiv:2306.06101).

    The estimate d of the distance to the solution takes the place of a learning rate; `lr` is a factor of it, 1 or a
    schedule from 1 downwards. With sums over all parameters of a group, which share d, and β₃ = √β₂::

        k = lr·d                                   with `use_bias_correction` · √(1 - β₂ᵗ)/(1 - β₁ᵗ)
        n ← β₃·n + d/d0·k·Σ⟨g, θ₀ - θ⟩
        m ← β₁·m + (1 - β₁)·d·g
        v ← β₂·v + (1 - β₂)·(d·g)²
        s ← β₃·s + d/d0·k·g                        with `safeguard_warmup` d/d0·d·g
        e = d_coef·n/Σ‖s‖₁
        d ← max(d, e)                              while it is d0
        d_max ← max(d_max, e),  d ← min(d_max, growth_rate·d)
        θ ← θ·(1 - k·weight_decay) - k·m/(√v + d·eps)

    Slots `exp_avg` (m), `exp_avg_sq` (v), `s` and `p0` (θ₀), and, shared, `d`, `d_max` and `d_numerator` (n). With
    `slice_p`, s and θ₀ are kept, and the sums taken, for every `slice_p`th element of a parameter only. While all
    gradients were zero, and where lr is 0, everything but the count of steps stays. Groups of parameters estimate a
    distance each.

    `growth_rate=None` sets no limit. With `decouple=False` the weight decay is added to the gradient. A weight decay
    of exactly 0.0 is left out of the graph; `maximize` climbs.

    Semantics and defaults of the package prodigyopt.

    Raises:
        ConfigurationError: A number out of its range.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay"})

    lr: Schedule | float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    beta3: float | None = None
    eps: float = 1e-8
    weight_decay: float = 0.0
    decouple: bool = True
    use_bias_correction: bool = False
    safeguard_warmup: bool = False
    d0: float = static(1e-6)
    d_coef: float = 1.0
    growth_rate: float | None = None
    slice_p: int = static(1)
    maximize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("d0", self.d0)
        positive("eps", self.eps)
        at_least("slice_p", self.slice_p, 1)
        if self.beta3 is not None:
            fraction("beta3", self.beta3)
        if self.growth_rate is not None:
            at_least("growth_rate", self.growth_rate, 1.0)

    @property
    def elementwise(self) -> bool:
        """The sums span the group; with `slice_p` it matters where a parameter begins."""
        return self.slice_p == 1

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the averages, and what is kept of the parameter."""
        kept = param if self.slice_p == 1 else param.reshape(-1)[:: self.slice_p]
        zero = np.zeros_like(param)
        return {"exp_avg": zero, "exp_avg_sq": zero.copy(), "s": np.zeros_like(kept), "p0": kept.copy()}

    def init_shared(self, params: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Return d0 for the distances, and zero for the numerator."""
        return {"d": np.asarray(self.d0), "d_max": np.asarray(self.d0), "d_numerator": np.zeros(())}

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take one step; see the class for the equations."""
        params, grads, states, shared = group
        lr, d = hyper["lr"], shared["d"]
        beta3 = xp.sqrt(hyper["beta2"]) if self.beta3 is None else xp.asarray(self.beta3, dtype=xp.float64)
        factor = d * lr
        if self.use_bias_correction:
            root = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
            factor = factor * root / bias_correction(xp, hyper["beta1"], step)
        relative = d / self.d0
        # A rate of 0 leaves all averages as they are: each keeps its whole weight.
        moving = lr > 0
        kept1, kept2, kept3 = (
            xp.where(moving, beta, xp.ones_like(d)) for beta in (hyper["beta1"], hyper["beta2"], beta3)
        )
        entering = xp.where(moving, relative * (d if self.safeguard_warmup else factor), xp.zeros_like(d))

        slots: dict[str, dict[str, Array]] = {}
        products, sizes = [], []
        for name, param in params.items():
            grad, state = -grads[name] if self.maximize else grads[name], states[name]
            if self.weight_decay and not self.decouple:
                grad = grad + cast_like(xp, hyper["weight_decay"], param) * param
            scaled = cast_like(xp, d, param) * grad
            there, slope = self._kept(xp, param), self._kept(xp, grad)
            s = cast_like(xp, kept3, param) * state["s"] + cast_like(xp, entering, param) * slope
            products.append(xp.sum(slope * (state["p0"] - there)))
            sizes.append(xp.sum(xp.abs(s)))
            slots[name] = {
                "exp_avg": ema(xp, kept1, state["exp_avg"], scaled),
                "exp_avg_sq": ema(xp, kept2, state["exp_avg_sq"], scaled * scaled),
                "s": s,
                "p0": state["p0"],
            }

        size = total(xp, sizes)
        active = xp.logical_and(moving, size > 0)
        numerator = beta3 * shared["d_numerator"] + relative * factor * total(xp, products)
        estimate = hyper["d_coef"] * numerator / xp.where(active, size, xp.ones_like(size))
        d_max = xp.maximum(shared["d_max"], estimate)
        start = xp.where(d == self.d0, xp.maximum(d, estimate), d)
        found = growing(xp, d_max, start, self.growth_rate)

        def unless_idle(new: Array, old: Array) -> Array:
            return xp.where(active, new, old)

        factor, found = unless_idle(factor, xp.zeros_like(d)), unless_idle(found, d)
        moved = {}
        for name, param in params.items():
            own = slots[name]
            denominator = xp.sqrt(own["exp_avg_sq"]) + cast_like(xp, found * hyper["eps"], param)
            if self.weight_decay and self.decouple:
                param = cast_like(xp, 1.0 - factor * hyper["weight_decay"], param) * param
            moved[name] = param - cast_like(xp, factor, param) * own["exp_avg"] / denominator
        return (
            moved,
            slots,
            {
                "d": found,
                "d_max": unless_idle(d_max, shared["d_max"]),
                "d_numerator": unless_idle(numerator, shared["d_numerator"]),
            },
        )

    def _kept(self, xp: Namespace, x: Array) -> Array:
        """What `s` and `p0` hold of an array."""
        if self.slice_p == 1:
            return x
        size = int(np.prod(x.shape, dtype=np.int64))
        return xp.take(xp.reshape(x, (-1,)), xp.arange(0, size, self.slice_p), axis=0)
