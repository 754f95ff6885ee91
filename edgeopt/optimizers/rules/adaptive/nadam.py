"""Adam with Nesterov momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import require
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Descent
from edgeopt.schedules import Schedule

__all__ = ["NAdam"]

Variant: TypeAlias = Literal["scheduled", "simple", "single"]


@dataclass(frozen=True)
class NAdam(Descent):
    """NAdam (Dozat, ICLR 2016 workshop), in the three forms that libraries give this name.

    With m and v the moments of Adam, and d = √v/√(1 - β₂ᵗ) + eps::

        scheduled   μₜ = β₁·(1 - 0.96^(t·momentum_decay)/2)      Π ← Π·μₜ
                    θ ← θ - lr·((1 - μₜ)/(1 - Π) · g + μₜ₊₁/(1 - Π·μₜ₊₁) · m)/d
        simple      θ ← θ - lr·((1 - β₁)/(1 - β₁ᵗ) · g + β₁/(1 - β₁ᵗ⁺¹) · m)/d
        single      θ ← θ - lr·((1 - β₁) · g + β₁ · m)/(1 - β₁ᵗ)/d

    They are not interchangeable. Slots `exp_avg` (m), `exp_avg_sq` (v) and, for the scheduled form, the scalar
    `mu_product` (Π), which is float64 here and float32 in torch.

    Semantics and defaults of `torch.optim.NAdam` and the paper for `scheduled`, of `optax.nadam` for `simple`, and of
    `NAdamW` in timm for `single`.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay"})

    lr: Schedule | float = 2e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    momentum_decay: float = 4e-3
    variant: Variant = "scheduled"

    def __post_init__(self) -> None:
        super().__post_init__()
        variants = get_args(Variant)
        require(self.variant in variants, f"variant must be one of {', '.join(variants)}, got {self.variant!r}")

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the moments, and a scalar 1 for the product of the momenta if they are scheduled."""
        product = {"mu_product": np.ones((), np.float64)} if self.variant == "scheduled" else {}
        return {**zeros(param, "exp_avg", "exp_avg_sq"), **product}

    def hyperparameters(self) -> dict[str, float]:
        """Return the numbers that the variant reads."""
        numbers = super().hyperparameters()
        if self.variant != "scheduled":
            del numbers["momentum_decay"]
        return numbers

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; both √(1 - β₂ᵗ) are moved to the scalars, as in Adam."""
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        slots = {
            "exp_avg": ema(xp, hyper["beta1"], state["exp_avg"], grad),
            "exp_avg_sq": ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad),
        }
        if self.variant == "scheduled":
            slots["mu_product"], of_grad, of_average = self._scheduled(xp, state["mu_product"], hyper, step)
        else:
            now, ahead = (bias_correction(xp, hyper["beta1"], count) for count in (step, step + 1))
            of_grad = (1.0 - hyper["beta1"]) / now
            of_average = hyper["beta1"] / (ahead if self.variant == "simple" else now)
        rate = hyper["lr"] * root_bias2
        numerator = (
            cast_like(xp, rate * of_grad, param) * grad + cast_like(xp, rate * of_average, param) * slots["exp_avg"]
        )
        denominator = xp.sqrt(slots["exp_avg_sq"]) + cast_like(xp, hyper["eps"] * root_bias2, param)
        return numerator / denominator, slots

    @staticmethod
    def _scheduled(xp: Namespace, product: Array, hyper: Arrays, step: Array) -> tuple[Array, Array, Array]:
        """The next product of the momenta, and the weights of the gradient and of its average."""

        def momentum(count: Array) -> Array:
            base = xp.asarray(0.96, dtype=xp.float64)
            return hyper["beta1"] * (1.0 - 0.5 * base ** (count * hyper["momentum_decay"]))

        count = xp.astype(step, xp.float64)
        now, ahead = momentum(count), momentum(count + 1.0)
        product = product * now
        return product, (1.0 - now) / (1.0 - product), ahead / (1.0 - product * ahead)
