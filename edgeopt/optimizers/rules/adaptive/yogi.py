"""Adam whose second moment moves by a bounded amount."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, static
from edgeopt.optimizers.rules.descent import Decay, Descent
from edgeopt.schedules import Schedule

__all__ = ["Yogi"]


@dataclass(frozen=True)
class Yogi(Descent):
    """Yogi (Zaheer et al., NeurIPS 2018).

    ::

        m ← β₁·m + (1 - β₁)·g
        v ← v - (1 - β₂)·sign(v - g²)·g²
        θ ← θ - lr/(1 - β₁ᵗ) · m / (√v/√(1 - β₂ᵗ) + eps)

    Slots `exp_avg` (m) and `exp_avg_sq` (v); both begin at `initial_accumulator`, so the parameter moves even without
    a gradient. A square beyond the largest finite number counts as that number.

    Semantics and defaults of pytorch_optimizer and optax.
    """

    lr: Schedule | float = 1e-2
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-3
    initial_accumulator: float = static(1e-6)
    decay: Decay = "before"

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the initial accumulator in every element."""
        return {slot: np.full_like(param, self.initial_accumulator) for slot in ("exp_avg", "exp_avg_sq")}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; √(1 - β₂ᵗ) is moved to the scalars, as in Adam."""
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        rate = hyper["lr"] * root_bias2 / bias_correction(xp, hyper["beta1"], step)
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        # Infinity minus infinity would be NaN.
        square = xp.minimum(grad * grad, xp.asarray(float(xp.finfo(param.dtype).max), dtype=param.dtype))
        old = state["exp_avg_sq"]
        exp_avg_sq = old - cast_like(xp, 1.0 - hyper["beta2"], param) * xp.sign(old - square) * square
        denominator = xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"] * root_bias2, param)
        return cast_like(xp, rate, param) * exp_avg / denominator, {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
