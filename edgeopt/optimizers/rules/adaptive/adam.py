"""Adam, with decay in the gradient (Adam) or beside it (AdamW)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent

__all__ = ["Adam", "AdamW"]


@dataclass(frozen=True)
class Adam(Descent):
    """Adam (Kingma and Ba, ICLR 2015, arXiv:1412.6980), with AMSGrad (Reddi et al., ICLR 2018, arXiv:1904.09237).

    ::

        m ← β₁·m + (1 - β₁)·g
        v ← β₂·v + (1 - β₂)·g²
        θ ← θ - lr/(1 - β₁ᵗ) · m / (√v/√(1 - β₂ᵗ) + eps)

    Slots `exp_avg` (m), `exp_avg_sq` (v) and, with `amsgrad`, `max_exp_avg_sq`: the running maximum of the raw v, which
    then takes its place under the root. `eps_hat` divides by (√v + eps)/√(1 - β₂ᵗ) instead, the paper's second form,
    which TensorFlow, Keras and ONNX use.

    Semantics and defaults of `torch.optim.Adam`.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    amsgrad: bool = False
    eps_hat: bool = False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the moments, and for the running maximum of the second with `amsgrad`."""
        slots = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if self.amsgrad else ("exp_avg", "exp_avg_sq")
        return zeros(param, *slots)

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Update the moments and return the bias-corrected step.

        torch divides by √v/√bias2 + eps and multiplies by lr/bias1. Multiplying both by √bias2 moves that factor
        from a tensor to two scalars, which saves one pass over the parameter.
        """
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        rate = hyper["lr"] * root_bias2 / bias_correction(xp, hyper["beta1"], step)
        eps = hyper["eps"] if self.eps_hat else hyper["eps"] * root_bias2

        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        slots = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
        if self.amsgrad:
            exp_avg_sq = slots["max_exp_avg_sq"] = xp.maximum(state["max_exp_avg_sq"], exp_avg_sq)
        denominator = xp.sqrt(exp_avg_sq) + cast_like(xp, eps, param)
        return cast_like(xp, rate, param) * exp_avg / denominator, slots


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019, arXiv:1711.05101).

    As `Adam`, except that the decay shrinks the parameter before the step and never enters the moments::

        θ ← θ·(1 - lr·weight_decay)

    Semantics and defaults of `torch.optim.AdamW`: the decay is multiplied by the learning rate, and is 0.01.
    """

    weight_decay: float = 1e-2
    decay: Decay = "before"
