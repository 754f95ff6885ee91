"""D-Adaptation: rules that estimate the distance to the solution, and step as it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, fraction, positive
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.distance import group_norm, growing, total
from edgeopt.optimizers.base import Arrays, Collective, GroupArrays, Rule, UpdatedAll, static, zeros
from edgeopt.schedules import Schedule

__all__ = ["DAdaptAdam", "DAdaptLion", "DAdaptSGD", "DAdaptation"]


@dataclass(frozen=True, kw_only=True)
class DAdaptation(Collective, Rule):
    """A rule whose rate is lr·d (Defazio and Mishchenko, ICML 2023, arXiv:2301.07733).

    d, a lower bound of the distance to the solution, begins as d0 and only grows, by the factor `growth_rate` at most;
    None sets no limit. The parameters of a group share it; groups estimate a distance each. `lr` is a factor, 1 or a
    schedule from 1 downwards. Shared slots `d` and, for most, `numerator`. While all gradients were zero, and where lr
    is 0, the estimate stays and nothing moves. A weight decay of exactly 0.0 is left out of the graph; `maximize`
    climbs.

    Raises:
        ConfigurationError: A number out of its range.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay"})

    weight_decay: float = 0.0
    d0: float = static(1e-6)
    growth_rate: float | None = None
    maximize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("d0", self.d0)
        if self.growth_rate is not None:
            at_least("growth_rate", self.growth_rate, 1.0)

    def init_shared(self, params: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Return d0 for the distance, and zero for the numerator of its estimate."""
        return {"d": np.asarray(self.d0), "numerator": np.zeros(())}

    def _uphill(self, xp: Namespace, param: Array, grad: Array, hyper: Arrays, *, decayed: bool) -> Array:
        """The gradient, with its sign and its weight decay."""
        grad = -grad if self.maximize else grad
        return grad + cast_like(xp, hyper["weight_decay"], param) * param if decayed and self.weight_decay else grad

    def _estimated(
        self, xp: Namespace, shared: Arrays, numerator: Array, denominator: Array, active: Array
    ) -> dict[str, Array]:
        """The shared slots after a step with d ← max(d, numerator/denominator), where it is active."""
        d = self._grown(xp, shared["d"], numerator, denominator, active)
        return {"d": d, "numerator": xp.where(active, numerator, shared["numerator"])}

    def _grown(self, xp: Namespace, d: Array, numerator: Array, denominator: Array, active: Array) -> Array:
        """The next distance max(d, min(numerator/denominator, growth_rate·d)), where the step is active."""
        estimate = numerator / xp.where(denominator > 0, denominator, xp.ones_like(denominator))
        return xp.where(active, xp.maximum(d, growing(xp, estimate, d, self.growth_rate)), d)


@dataclass(frozen=True)
class DAdaptAdam(DAdaptation):
    """Adam with D-Adaptation (Defazio and Mishchenko, ICML 2023, arXiv:2301.07733).

    With sums over all parameters of a group, and b = √β₂::

        k = lr·d                                   with `use_bias_correction` · √(1 - β₂ᵗ)/(1 - β₁ᵗ)
        n ← b·n + (1 - b)·k·Σ⟨g, s/(√v + eps)⟩     with the v of before
        m ← β₁·m + (1 - β₁)·k·g
        v ← β₂·v + (1 - β₂)·g²
        s ← b·s + (1 - b)·k·g
        d ← max(d, min(n/((1 - b)·Σ‖s‖₁), growth_rate·d))
        θ ← θ - m/(√v + eps)

    Slots `exp_avg` (m), `exp_avg_sq` (v) and `s`, and, shared, `d` and `numerator` (n). The weight decay is added to
    the gradient; with `decouple`, θ ← θ·(1 - k·weight_decay) comes before the step instead.

    Semantics and defaults of the package dadaptation, which also moves nothing while all gradients were zero.
    """

    lr: Schedule | float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decouple: bool = False
    use_bias_correction: bool = False

    #: The estimate of d sums quotients by the root of the last squares; one rounded to zero would drown the others.
    exact_slots: ClassVar[frozenset[str]] = frozenset({"exp_avg_sq"})

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("eps", self.eps)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the averages."""
        return zeros(param, "exp_avg", "exp_avg_sq", "s")

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take one step; see the class for the equations."""
        params, grads, states, shared = group
        beta1, beta2, moving = hyper["beta1"], hyper["beta2"], hyper["lr"] > 0
        factor = shared["d"] * hyper["lr"]
        if self.use_bias_correction:
            factor = factor * xp.sqrt(bias_correction(xp, beta2, step)) / bias_correction(xp, beta1, step)
        root = xp.sqrt(beta2)
        # A rate of 0 leaves all averages as they are: each keeps its whole weight.
        kept1, kept2, kept = (xp.where(moving, beta, xp.ones_like(beta)) for beta in (beta1, beta2, root))
        slots: dict[str, dict[str, Array]] = {}
        products, sizes = [], []
        for name, param in params.items():
            state, grad = states[name], self._uphill(xp, param, grads[name], hyper, decayed=not self.decouple)
            denominator = xp.sqrt(state["exp_avg_sq"]) + cast_like(xp, hyper["eps"], param)
            products.append(xp.sum(grad * (state["s"] / denominator)))
            scaled = cast_like(xp, factor, param) * grad
            s = ema(xp, kept, state["s"], scaled)
            sizes.append(xp.sum(xp.abs(s)))
            exp_avg = ema(xp, kept1, state["exp_avg"], scaled)
            slots[name] = {"exp_avg": exp_avg, "exp_avg_sq": ema(xp, kept2, state["exp_avg_sq"], grad * grad), "s": s}

        size = total(xp, sizes)
        active = xp.logical_and(moving, size > 0)
        numerator = root * shared["numerator"] + (1.0 - root) * factor * total(xp, products)
        estimated = self._estimated(xp, shared, numerator, (1.0 - root) * size, active)
        share = xp.where(active, xp.ones_like(size), xp.zeros_like(size))
        moved = {}
        for name, param in params.items():
            denominator = xp.sqrt(slots[name]["exp_avg_sq"]) + cast_like(xp, hyper["eps"], param)
            if self.weight_decay and self.decouple:
                param = cast_like(xp, 1.0 - share * factor * hyper["weight_decay"], param) * param
            moved[name] = param - cast_like(xp, share, param) * slots[name]["exp_avg"] / denominator
        return moved, slots, estimated


@dataclass(frozen=True)
class DAdaptSGD(DAdaptation):
    """SGD with D-Adaptation (Defazio and Mishchenko, ICML 2023, arXiv:2301.07733).

    With sums over all parameters of a group, G the norm of their first gradient that is not zero, and μ the
    momentum::

        k = lr·d/G
        n ← n + k·Σ⟨g, s⟩
        s ← s + k·g
        d ← max(d, min(2·n/√Σ‖s‖², growth_rate·d))
        θ ← μ·θ + (1 - μ)·(θ₀ - s)

    Slots `s` and `initial_param` (θ₀), and, shared, `d`, `numerator` (n) and `first_norm` (G). The weight decay is
    added to the gradient, also for G.

    Semantics and defaults of the package dadaptation, which divides by zero where the first gradient is zero, and
    forgets the weight decay in G, so that a small first gradient makes d diverge.
    """

    lr: Schedule | float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("momentum", self.momentum)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the sum, and the parameter."""
        return {"s": np.zeros_like(param), "initial_param": param.copy()}

    def init_shared(self, params: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Return d0 for the distance, and zeros for its numerator and the norm of the first gradient."""
        return {**super().init_shared(params), "first_norm": np.zeros(())}

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take one step; see the class for the equations."""
        params, grads, states, shared = group
        slopes = {name: self._uphill(xp, params[name], grad, hyper, decayed=True) for name, grad in grads.items()}
        first = shared["first_norm"]
        first = xp.where(first > 0, first, group_norm(xp, list(slopes.values())))
        begun = first > 0
        factor = xp.where(begun, shared["d"] * hyper["lr"] / xp.where(begun, first, xp.ones_like(first)), first)
        moved: dict[str, Array] = {}
        slots: dict[str, dict[str, Array]] = {}
        products, squares = [], []
        for name, param in params.items():
            state, grad = states[name], slopes[name]
            products.append(xp.sum(grad * state["s"]))
            s = state["s"] + cast_like(xp, factor, param) * grad
            squares.append(xp.sum(s * s))
            slots[name] = {"s": s, "initial_param": state["initial_param"]}
            target = state["initial_param"] - s
            moved[name] = param + cast_like(xp, 1.0 - hyper["momentum"], param) * (target - param)
        square = total(xp, squares)
        numerator = shared["numerator"] + factor * total(xp, products)
        estimated = self._estimated(xp, shared, 2.0 * numerator, xp.sqrt(square), square > 0)
        return moved, slots, {**estimated, "numerator": numerator, "first_norm": first}


@dataclass(frozen=True)
class DAdaptLion(DAdaptation):
    """Lion with D-Adaptation (dadaptation 3.2, after Defazio and Mishchenko, ICML 2023, arXiv:2301.07733).

    With sums over all parameters of a group, k = lr·d and b = √β₂::

        u = sign(β₁·m + (1 - β₁)·g)
        θ ← θ·(1 - k·weight_decay) - k·u
        m ← β₂·m + (1 - β₂)·k·g
        n ← b·n + (1 - b)·k·Σ⟨u, s⟩
        s ← b·s + (1 - b)·k·u
        d ← max(d, min(n/((1 - b)·Σ‖s‖₁), growth_rate·d))

    Slots `exp_avg` (m) and `s`, and, shared, `d` and `numerator` (n).

    Semantics and defaults of the package dadaptation, which has no growth rate here.
    """

    lr: Schedule | float = 1.0
    beta1: float = 0.9
    beta2: float = 0.99

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the averages."""
        return zeros(param, "exp_avg", "s")

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take one step; see the class for the equations."""
        params, grads, states, shared = group
        factor, root = shared["d"] * hyper["lr"], xp.sqrt(hyper["beta2"])
        moved: dict[str, Array] = {}
        slots: dict[str, dict[str, Array]] = {}
        products, sizes = [], []
        for name, param in params.items():
            state, grad = states[name], self._uphill(xp, param, grads[name], hyper, decayed=False)
            own = cast_like(xp, factor, param)
            direction = xp.sign(ema(xp, hyper["beta1"], state["exp_avg"], grad))
            if self.weight_decay:
                param = cast_like(xp, 1.0 - factor * hyper["weight_decay"], param) * param
            moved[name] = param - own * direction
            products.append(xp.sum(direction * state["s"]))
            s = ema(xp, root, state["s"], own * direction)
            sizes.append(xp.sum(xp.abs(s)))
            slots[name] = {"exp_avg": ema(xp, hyper["beta2"], state["exp_avg"], own * grad), "s": s}
        size = total(xp, sizes)
        numerator = root * shared["numerator"] + (1.0 - root) * factor * total(xp, products)
        active = xp.logical_and(hyper["lr"] > 0, size > 0)
        return moved, slots, self._estimated(xp, shared, numerator, (1.0 - root) * size, active)
