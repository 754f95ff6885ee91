"""Adam with a trust ratio for each layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.norms import norm, trust_ratio
from edgeopt.optimizers.base import Arrays, Rule, Updated, zeros

__all__ = ["LAMB"]


@dataclass(frozen=True)
class LAMB(Rule):
    """LAMB (You et al., ICLR 2020, arXiv:1904.00962).

    With m and v the moments of Adam::

        r = m/(1 - β₁ᵗ) / (√v/√(1 - β₂ᵗ) + eps) + weight_decay·θ
        θ ← θ - lr · ‖θ‖/‖r‖ · r

    The ratio is 1 where a norm is zero. `bias_correction=False` leaves both corrections out, a `max_norm` above 0.0
    limits ‖θ‖ in the ratio, and `trust_clip` limits the ratio to 1; the early implementations have the first two, with
    a limit of 10. Slots `exp_avg` (m) and `exp_avg_sq` (v). A weight decay of exactly 0.0 is left out of the graph;
    `maximize` climbs. The paper's clipping by the global norm is a transform of its own.

    Semantics of `optax.lamb` and, with a weight decay and that clipping, of timm.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay", "max_norm"})

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.0
    max_norm: float = 0.0
    bias_correction: bool = True
    trust_clip: bool = False
    maximize: bool = False

    @property
    def elementwise(self) -> bool:
        """The trust ratio is one number for the tensor."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the two moments."""
        return zeros(param, "exp_avg", "exp_avg_sq")

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step; √(1 - β₂ᵗ) is moved to the scalars, as in Adam."""
        if self.maximize:
            grad = -grad
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        direction, eps = exp_avg, hyper["eps"]
        if self.bias_correction:
            root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
            eps = eps * root_bias2
            direction = cast_like(xp, root_bias2 / bias_correction(xp, hyper["beta1"], step), param) * exp_avg
        direction = direction / (xp.sqrt(exp_avg_sq) + cast_like(xp, eps, param))
        if self.weight_decay:
            direction = direction + cast_like(xp, hyper["weight_decay"], param) * param
        length = norm(xp, param)
        if self.max_norm:
            length = xp.minimum(length, cast_like(xp, hyper["max_norm"], param))
        ratio = trust_ratio(xp, length, norm(xp, direction))
        if self.trust_clip:
            ratio = xp.minimum(ratio, xp.ones_like(ratio))
        slots = {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
        return param - cast_like(xp, hyper["lr"], param) * ratio * direction, slots
