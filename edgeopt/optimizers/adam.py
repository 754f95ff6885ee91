"""Adam, with decay in the gradient (Adam) or beside it (AdamW)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, fraction
from edgeopt.optimizers.base import Optimizer

__all__ = ["Adam", "AdamW"]


@dataclass(frozen=True)
class _AdamRule(Optimizer):
    """What Adam and AdamW share: everything but the place of the weight decay."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    maximize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("beta1", self.beta1)
        fraction("beta2", self.beta2)
        at_least("eps", self.eps, 0.0)
        at_least("weight_decay", self.weight_decay, 0.0)

    def slots(self) -> tuple[str, ...]:
        """Return the two moments, and the running maximum of the second with `amsgrad`."""
        moments = ("exp_avg", "exp_avg_sq")
        return (*moments, "max_exp_avg_sq") if self.amsgrad else moments

    def hyperparameters(self) -> dict[str, float]:
        """Return betas and eps, and the weight decay unless it is switched off."""
        numbers = {"beta1": float(self.beta1), "beta2": float(self.beta2), "eps": float(self.eps)}
        return {**numbers, "weight_decay": float(self.weight_decay)} if self.weight_decay else numbers

    def _step(
        self,
        xp: Namespace,
        param: Array,
        grad: Array,
        state: Mapping[str, Array],
        hyper: Mapping[str, Array],
        step: Array,
    ) -> tuple[Array, dict[str, Array]]:
        """Update the moments and take the bias-corrected step.

        torch divides by √v/√bias2 + eps and multiplies by lr/bias1. Multiplying both by √bias2 moves that factor
        from a tensor to two scalars, which saves one pass over the parameter.
        """
        beta1, beta2 = hyper["beta1"], hyper["beta2"]
        count = xp.astype(step, xp.float64)
        root_bias2 = xp.sqrt(1.0 - beta2**count)
        rate = hyper["lr"] * root_bias2 / (1.0 - beta1**count)

        exp_avg = cast_like(xp, beta1, param) * state["exp_avg"] + cast_like(xp, 1.0 - beta1, param) * grad
        exp_avg_sq = cast_like(xp, beta2, param) * state["exp_avg_sq"] + cast_like(xp, 1.0 - beta2, param) * (
            grad * grad
        )
        updated = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
        second = exp_avg_sq
        if self.amsgrad:
            second = updated["max_exp_avg_sq"] = xp.maximum(state["max_exp_avg_sq"], exp_avg_sq)
        denominator = xp.sqrt(second) + cast_like(xp, hyper["eps"] * root_bias2, param)
        return param - cast_like(xp, rate, param) * exp_avg / denominator, updated


@dataclass(frozen=True)
class Adam(_AdamRule):
    """Adam (Kingma and Ba, ICLR 2015, arXiv:1412.6980), with AMSGrad (Reddi et al., ICLR 2018, arXiv:1904.09237).

    ::

        g ← g + weight_decay·θ
        m ← β₁·m + (1 - β₁)·g
        v ← β₂·v + (1 - β₂)·g²
        θ ← θ - lr/(1 - β₁ᵗ) · m / (√v/√(1 - β₂ᵗ) + eps)

    Slots `exp_avg` (m), `exp_avg_sq` (v) and, with `amsgrad`, `max_exp_avg_sq`: the running maximum of the raw v, which
    then takes its place under the root. A weight decay of exactly 0.0 is left out of the graph. `maximize` climbs.

    Semantics and defaults of `torch.optim.Adam`.

    Raises:
        ConfigurationError: A beta outside [0, 1), or a negative number.
    """

    def update(
        self,
        xp: Namespace,
        param: Array,
        grad: Array,
        state: Mapping[str, Array],
        hyper: Mapping[str, Array],
        step: Array,
    ) -> tuple[Array, dict[str, Array]]:
        """Take one step; see the class for the equations."""
        if self.maximize:
            grad = -grad
        if self.weight_decay:
            grad = grad + cast_like(xp, hyper["weight_decay"], param) * param
        return self._step(xp, param, grad, state, hyper, step)


@dataclass(frozen=True)
class AdamW(_AdamRule):
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019, arXiv:1711.05101).

    As `Adam`, except that the decay shrinks the parameter before the step and never enters the moments::

        θ ← θ·(1 - lr·weight_decay)

    Semantics and defaults of `torch.optim.AdamW`: the decay is multiplied by the learning rate, and is 0.01.

    Raises:
        ConfigurationError: A beta outside [0, 1), or a negative number.
    """

    weight_decay: float = 1e-2

    def update(
        self,
        xp: Namespace,
        param: Array,
        grad: Array,
        state: Mapping[str, Array],
        hyper: Mapping[str, Array],
        step: Array,
    ) -> tuple[Array, dict[str, Array]]:
        """Take one step; see the class for the equations."""
        if self.maximize:
            grad = -grad
        if self.weight_decay:
            param = cast_like(xp, 1.0 - hyper["lr"] * hyper["weight_decay"], param) * param
        return self._step(xp, param, grad, state, hyper, step)
