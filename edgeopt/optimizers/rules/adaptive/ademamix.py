"""Adam with a second, much slower, momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import require
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent

__all__ = ["AdEMAMix", "SimplifiedAdEMAMix"]


@dataclass(frozen=True)
class AdEMAMix(Descent):
    """AdEMAMix (Pagliardini, Ablin and Grangier, ICLR 2025, arXiv:2409.03137).

    ::

        m ← β₁·m + (1 - β₁)·g
        s ← β₃·s + (1 - β₃)·g
        v ← β₂·v + (1 - β₂)·g²
        θ ← θ - lr·(m/(1 - β₁ᵗ) + alpha·s) / (√v/√(1 - β₂ᵗ) + eps)

    The slow average s is not corrected for its bias. With T = `t_alpha_beta3` above 0, alpha and β₃ reach their values
    after that many steps: alpha·t/T, and the β₃ that interpolates 1/ln β linearly from β₁'s; the paper advises this for
    runs of many steps. Slots `exp_avg` (m), `exp_avg_slow` (s) and `exp_avg_sq` (v).

    Semantics and defaults of the paper and of pytorch_optimizer.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay", "t_alpha_beta3"})

    beta1: float = 0.9
    beta2: float = 0.999
    beta3: float = 0.9999
    alpha: float = 5.0
    eps: float = 1e-8
    t_alpha_beta3: float = 0.0
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            not self.t_alpha_beta3 or self.beta1 > 0.0,
            "t_alpha_beta3 begins at the half-life of beta1, which must be above 0",
        )

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the three averages."""
        return zeros(param, "exp_avg", "exp_avg_slow", "exp_avg_sq")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; √(1 - β₂ᵗ) is moved to the scalars, as in Adam."""
        alpha, beta3 = self._warmed_up(xp, hyper, step) if self.t_alpha_beta3 else (hyper["alpha"], hyper["beta3"])
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        rate = hyper["lr"] * root_bias2
        slots = {
            "exp_avg": ema(xp, hyper["beta1"], state["exp_avg"], grad),
            "exp_avg_slow": ema(xp, beta3, state["exp_avg_slow"], grad),
            "exp_avg_sq": ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad),
        }
        of_fast = cast_like(xp, rate / bias_correction(xp, hyper["beta1"], step), param)
        numerator = of_fast * slots["exp_avg"] + cast_like(xp, rate * alpha, param) * slots["exp_avg_slow"]
        denominator = xp.sqrt(slots["exp_avg_sq"]) + cast_like(xp, hyper["eps"] * root_bias2, param)
        return numerator / denominator, slots

    @staticmethod
    def _warmed_up(xp: Namespace, hyper: Arrays, step: Array) -> tuple[Array, Array]:
        """The alpha and the β₃ of this step."""
        length = hyper["t_alpha_beta3"]
        share = xp.minimum(xp.astype(step, xp.float64) / length, xp.ones_like(length))
        start, end = xp.log(hyper["beta1"]), xp.log(hyper["beta3"])
        beta3 = xp.exp(start * end / ((1.0 - share) * end + share * start))
        return share * hyper["alpha"], xp.minimum(beta3, hyper["beta3"])


@dataclass(frozen=True)
class SimplifiedAdEMAMix(Descent):
    """Simplified AdEMAMix (Morwani et al. 2025, arXiv:2502.02431): one momentum, mixed with the gradient.

    ::

        m ← β₁·m + g
        v ← β₂·v + (1 - β₂)·g²
        θ ← θ - lr·(m + alpha·g) / (√v/√(1 - β₂ᵗ) + eps)

    The momentum is a sum, not an average, so a learning rate tuned for Adam is to be multiplied by about 1 - β₁. Slots
    `exp_avg` (m) and `exp_avg_sq` (v).

    Semantics and defaults of the authors' code and of optax; pytorch_optimizer averages instead.
    """

    beta1: float = 0.99
    beta2: float = 0.95
    alpha: float = 0.0
    eps: float = 1e-8
    decay: Decay = "before"

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum and the second moment."""
        return zeros(param, "exp_avg", "exp_avg_sq")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; √(1 - β₂ᵗ) is moved to the scalars, as in Adam."""
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        momentum = cast_like(xp, hyper["beta1"], param) * state["exp_avg"] + grad
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        numerator = momentum + cast_like(xp, hyper["alpha"], param) * grad
        denominator = xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"] * root_bias2, param)
        rate = cast_like(xp, hyper["lr"] * root_bias2, param)
        return rate * numerator / denominator, {"exp_avg": momentum, "exp_avg_sq": exp_avg_sq}
