"""D-Adaptation whose estimate compares weighted norms: of the sum of gradients, and of the gradients themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction, positive
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.arithmetic.distance import total
from edgeopt.optimizers.base import Arrays, GroupArrays, UpdatedAll, static, zeros
from edgeopt.optimizers.rules.rate_free.dadaptation import DAdaptation
from edgeopt.schedules import Schedule

__all__ = ["DAdaptAdaGrad", "DAdaptAdan"]


@dataclass(frozen=True, kw_only=True)
class _ByNorms(DAdaptation):
    """What both share: the estimate d ← max(d, min((Σ s²/w - G)/Σ‖s‖₁, growth_rate·d)), with weights w."""

    def init_shared(self, params: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Return d0 for the distance, and zero for the sum of the gradients' weighted squares."""
        return {"d": np.asarray(self.d0), "sum_sq_grad": np.zeros(())}


@dataclass(frozen=True)
class DAdaptAdaGrad(_ByNorms):
    """Adagrad with D-Adaptation (Defazio and Mishchenko, ICML 2023, arXiv:2301.07733).

    With sums over all parameters of a group, w = √a + eps, and μ the momentum::

        k = lr·d
        a ← a + g²
        s ← s + k·g
        G ← G + k²·Σ g²/w
        d ← max(d, min((Σ s²/w - G)/Σ‖s‖₁, growth_rate·d))
        θ ← μ·θ + (1 - μ)·(θ₀ - s/w)

    Slots `sum` (a), which begins as `initial_accumulator_value`, `s` and `initial_param` (θ₀), and, shared, `d` and
    `sum_sq_grad` (G). The weight decay is added to the gradient.

    Semantics and defaults of the package dadaptation, for dense gradients.
    """

    lr: Schedule | float = 1.0
    momentum: float = 0.0
    eps: float = 1e-6
    initial_accumulator_value: float = static(1e-6)

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("momentum", self.momentum)
        positive("eps", self.eps)
        positive("initial_accumulator_value", self.initial_accumulator_value)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the first value of the sum of squares, zeros for the sum of gradients, and the parameter."""
        first = np.full_like(param, self.initial_accumulator_value)
        return {"sum": first, "s": np.zeros_like(param), "initial_param": param.copy()}

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take one step; see the class for the equations."""
        params, grads, states, shared = group
        moving = hyper["lr"] > 0
        factor = shared["d"] * hyper["lr"]
        slots: dict[str, dict[str, Array]] = {}
        targets: dict[str, Array] = {}
        far, squares, sizes = [], [], []
        for name, param in params.items():
            state, grad = states[name], self._uphill(xp, param, grads[name], hyper, decayed=True)
            # A rate of 0 leaves the sum of squares, too.
            square = xp.where(moving, grad * grad, xp.zeros_like(grad))
            summed = state["sum"] + square
            weight = xp.sqrt(summed) + cast_like(xp, hyper["eps"], param)
            s = state["s"] + cast_like(xp, factor, param) * grad
            # Quotients first: squares may overflow.
            squares.append(xp.sum(grad * (grad / weight)))
            far.append(xp.sum(s * (s / weight)))
            sizes.append(xp.sum(xp.abs(s)))
            targets[name] = state["initial_param"] - s / weight
            slots[name] = {"sum": summed, "s": s, "initial_param": state["initial_param"]}
        size = total(xp, sizes)
        active = xp.logical_and(moving, size > 0)
        sum_sq_grad = shared["sum_sq_grad"] + factor * factor * total(xp, squares)
        d = self._grown(xp, shared["d"], total(xp, far) - sum_sq_grad, size, active)
        share = xp.where(active, 1.0 - hyper["momentum"], xp.zeros_like(size))
        moved = {name: param + cast_like(xp, share, param) * (targets[name] - param) for name, param in params.items()}
        return moved, slots, {"d": d, "sum_sq_grad": sum_sq_grad}


@dataclass(frozen=True)
class DAdaptAdan(_ByNorms):
    """Adan with D-Adaptation (dadaptation 3.2, after Defazio and Mishchenko, ICML 2023, arXiv:2301.07733).

    With sums over all parameters of a group, h the gradient of the step before, at first g, and w = √n + eps::

        k = lr·d
        m ← β₁·m + (1 - β₁)·k·g
        v ← β₂·v + (1 - β₂)·k·(g - h)
        n ← β₃·n + (1 - β₃)·(g + β₂·(g - h))²
        s ← β₃·s + (1 - β₃)·k·g
        G ← β₃·G + (1 - β₃)·k²·Σ g²/w
        d ← max(d, min((Σ s²/w/(1 - β₃) - G)/Σ‖s‖₁, growth_rate·d))
        θ ← (θ - (m + β₂·v)/w)/(1 + k·weight_decay)

    With `no_prox` θ ← θ·(1 - k·weight_decay) comes before the step instead. Slots `exp_avg` (m), `exp_avg_diff` (v),
    `exp_avg_sq` (n), `s` and `previous_grad` (h), and, shared, `d` and `sum_sq_grad` (G).

    Semantics and defaults of the package dadaptation; pytorch_optimizer differs from it.
    """

    lr: Schedule | float = 1.0
    beta1: float = 0.98
    beta2: float = 0.92
    beta3: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.02
    no_prox: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("eps", self.eps)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the averages and for the gradient before."""
        return zeros(param, "exp_avg", "exp_avg_diff", "exp_avg_sq", "s", "previous_grad")

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take one step; see the class for the equations."""
        params, grads, states, shared = group
        moving, begun = hyper["lr"] > 0, shared["sum_sq_grad"] > 0
        factor, beta2 = shared["d"] * hyper["lr"], hyper["beta2"]
        # A rate of 0 leaves all averages as they are: each keeps its whole weight.
        kept1, kept2, kept3 = (
            xp.where(moving, hyper[beta], xp.ones_like(factor)) for beta in ("beta1", "beta2", "beta3")
        )
        slots: dict[str, dict[str, Array]] = {}
        weights: dict[str, Array] = {}
        far, squares, sizes = [], [], []
        for name, param in params.items():
            state, grad = states[name], self._uphill(xp, param, grads[name], hyper, decayed=False)
            own = cast_like(xp, factor, param)
            change = xp.where(begun, grad - state["previous_grad"], xp.zeros_like(grad))
            ahead = grad + cast_like(xp, beta2, param) * change
            slots[name] = {
                "exp_avg": ema(xp, kept1, state["exp_avg"], own * grad),
                "exp_avg_diff": ema(xp, kept2, state["exp_avg_diff"], own * change),
                "exp_avg_sq": ema(xp, kept3, state["exp_avg_sq"], ahead * ahead),
                "s": ema(xp, kept3, state["s"], own * grad),
                "previous_grad": grad,
            }
            weight = weights[name] = xp.sqrt(slots[name]["exp_avg_sq"]) + cast_like(xp, hyper["eps"], param)
            s = slots[name]["s"]
            # Quotients first: squares may overflow.
            squares.append(xp.sum(grad * (grad / weight)))
            far.append(xp.sum(s * (s / weight)))
            sizes.append(xp.sum(xp.abs(s)))
        size = total(xp, sizes)
        active = xp.logical_and(moving, size > 0)
        sum_sq_grad = kept3 * shared["sum_sq_grad"] + (1.0 - kept3) * factor * factor * total(xp, squares)
        d = self._grown(xp, shared["d"], total(xp, far) / (1.0 - hyper["beta3"]) - sum_sq_grad, size, active)
        share = xp.where(active, xp.ones_like(size), xp.zeros_like(size))
        decay = share * factor * hyper["weight_decay"] if self.weight_decay else None
        moved = {}
        for name, param in params.items():
            delta = slots[name]["exp_avg"] + cast_like(xp, beta2, param) * slots[name]["exp_avg_diff"]
            if decay is not None and self.no_prox:
                param = cast_like(xp, 1.0 - decay, param) * param
            param = param - cast_like(xp, share, param) * delta / weights[name]
            if decay is not None and not self.no_prox:
                param = cast_like(xp, 1.0 / (1.0 + decay), param) * param
            moved[name] = param
        return moved, slots, {"d": d, "sum_sq_grad": sum_sq_grad}
