"""Adam that converges for every beta2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.base import Arrays, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent

__all__ = ["ADOPT"]


@dataclass(frozen=True)
class ADOPT(Descent):
    """ADOPT (Taniguchi et al., NeurIPS 2024, arXiv:2411.02853), the clipped form of the paper.

    The first update only sets v = g². From the second on, with c = (t-1)^¼::

        m ← β₁·m + (1 - β₁)·clip(g/max(√v, eps), -c, c)
        θ ← θ - lr·m
        v ← β₂·v + (1 - β₂)·g²

    Slots `exp_avg` (m) and `exp_avg_sq` (v). Weight decay shrinks the parameter at every step, the first included.

    Semantics of the paper and of optax. pytorch_optimizer, timm and later versions of the authors' code each clip
    differently.
    """

    beta1: float = 0.9
    beta2: float = 0.9999
    eps: float = 1e-6
    decay: Decay = "before"

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the two moments."""
        return zeros(param, "exp_avg", "exp_avg_sq")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        # Both choices for the first update are made on scalars: no limit leaves nothing of g, a beta of 0 sets v.
        limit = cast_like(xp, (xp.astype(step, xp.float64) - 1.0) ** 0.25, param)
        beta2 = xp.where(step == 1, xp.zeros_like(hyper["beta2"]), hyper["beta2"])
        denominator = xp.maximum(xp.sqrt(state["exp_avg_sq"]), cast_like(xp, hyper["eps"], param))
        direction = xp.minimum(xp.maximum(grad / denominator, -limit), limit)
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], direction)
        exp_avg_sq = ema(xp, beta2, state["exp_avg_sq"], grad * grad)
        return cast_like(xp, hyper["lr"], param) * exp_avg, {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
