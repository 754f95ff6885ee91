"""Momentum over a clipped estimate of the Hessian's diagonal: Sophia."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, positive
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.arithmetic.timing import kept_unless, starts_period
from edgeopt.optimizers.base import Arrays, Updated, static, zeros
from edgeopt.optimizers.ingredients import GaussNewtonBartlett, HutchinsonDiagonal, Ingredient
from edgeopt.optimizers.rules.descent import Decay, Descent
from edgeopt.schedules import Schedule

__all__ = ["SophiaG", "SophiaH"]


@dataclass(frozen=True)
class _Sophia(Descent):
    """What both share: the two averages, and when the second one moves."""

    every: int = static(10)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("every", self.every, 1)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum and the curvature."""
        return zeros(param, "exp_avg", "hessian")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Update the averages and return the clipped step."""
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        due = None if self.every == 1 else starts_period(xp, step, self.every)
        measured = ema(xp, hyper["beta2"], state["hessian"], state["curvature"])
        hessian = kept_unless(xp, due, measured, state["hessian"])
        slots = {"exp_avg": exp_avg, "hessian": hessian}
        return cast_like(xp, hyper["lr"], param) * self._clipped(xp, exp_avg, hessian, hyper), slots

    @abstractmethod
    def _clipped(self, xp: Namespace, momentum: Array, hessian: Array, hyper: Arrays) -> Array:
        """The step for a learning rate of 1."""


@dataclass(frozen=True)
class SophiaG(_Sophia):
    """Sophia with the Gauss-Newton-Bartlett estimator (Liu et al., ICLR 2024, arXiv:2305.14342).

    ::

        m ← β₁·m + (1 - β₁)·g
        h ← β₂·h + (1 - β₂)·B·ĝ²                 at the updates 1, 1 + every, 1 + 2·every, …
        θ ← θ·(1 - lr·weight_decay) - lr·sign(m)·min(|m|/(rho·h + eps), 1)

    ĝ is the gradient of the mean loss against labels drawn from the model's own softmax, B their number; a bundle
    computes B·ĝ² by a second pass backwards, which needs the loss `CrossEntropy`. Slots `exp_avg` (m) and `hessian`
    (h). h begins at zero and its bias is not corrected, so the first steps are all clipped.

    Semantics and defaults of the authors' package sophia_opt, where h does without B and the step takes it as `bs`; B
    is in h here, so that a batch of another size counts as what it is. There the caller chooses when h is updated.
    """

    lr: Schedule | float = 1e-4
    beta1: float = 0.965
    beta2: float = 0.99
    rho: float = 0.04
    eps: float = 1e-15
    weight_decay: float = 0.1
    decay: Decay = "before"

    def ingredients(self, param: np.ndarray[Any, Any]) -> dict[str, Ingredient]:
        """The estimate of curvature."""
        return {"curvature": GaussNewtonBartlett(self.every)}

    def _clipped(self, xp: Namespace, momentum: Array, hessian: Array, hyper: Arrays) -> Array:
        scaled = cast_like(xp, hyper["rho"], hessian) * hessian + cast_like(xp, hyper["eps"], hessian)
        return xp.sign(momentum) * xp.minimum(xp.abs(momentum) / scaled, xp.ones_like(momentum))


@dataclass(frozen=True)
class SophiaH(_Sophia):
    """Sophia with Hutchinson's estimator (Liu et al., ICLR 2024, arXiv:2305.14342).

    ::

        m ← β₁·m + (1 - β₁)·g
        h ← β₂·h + (1 - β₂)·(z ⊙ Hz)            at the updates 1, 1 + every, 1 + 2·every, …
        θ ← θ·(1 - lr·weight_decay) - lr·clip(m/max(h, eps), ±p)

    H is the Hessian of the loss and z a vector of random signs; a bundle computes Hz by differentiating the gradient.
    No element moves by more than lr·p. Slots `exp_avg` (m) and `hessian` (h). h begins at zero and its bias is not
    corrected, so the first steps are all clipped.

    Semantics and defaults of pytorch_optimizer, but for the signs of z, which are normal numbers there by default. The
    paper writes clip(m/max(gamma·h, eps), ±1): with gamma = p and the learning rate lr·p both are the same.
    """

    lr: Schedule | float = 6e-2
    beta1: float = 0.96
    beta2: float = 0.99
    p: float = 1e-2
    eps: float = 1e-12
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("eps", self.eps)

    def ingredients(self, param: np.ndarray[Any, Any]) -> dict[str, Ingredient]:
        """The estimate of curvature."""
        return {"curvature": HutchinsonDiagonal(self.every)}

    def _clipped(self, xp: Namespace, momentum: Array, hessian: Array, hyper: Arrays) -> Array:
        bound = cast_like(xp, hyper["p"], momentum)
        ratio = momentum / xp.maximum(hessian, cast_like(xp, hyper["eps"], hessian))
        return xp.maximum(xp.minimum(ratio, bound), -bound)
