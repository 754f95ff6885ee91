"""Momentum of gradients that each layer normalises by its own scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.arithmetic.norms import finite_square
from edgeopt.optimizers.base import Arrays, Rule, Updated, zeros

__all__ = ["NovoGrad"]


@dataclass(frozen=True)
class NovoGrad(Rule):
    """NovoGrad (Ginsburg et al. 2019, arXiv:1905.11286).

    ::

        v ← β₂·v + (1 - β₂)·‖g‖²             the first v is ‖g‖² itself
        u = g/(√v + eps) + weight_decay·θ
        m ← β₁·m + u                         with `grad_averaging` β₁·m + (1 - β₁)·u, but the first m is u
        θ ← θ - lr·m

    There is no correction of the bias. Slots `moments` (m) and the scalar `grads_ema` (v). A weight decay of exactly
    0.0 is left out of the graph; `maximize` climbs. Squares beyond 2⁻³² of the largest finite number count as that
    number.

    Semantics and defaults of the paper and of pytorch_optimizer with `weight_decouple=False`.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay"})

    beta1: float = 0.95
    beta2: float = 0.98
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_averaging: bool = False
    maximize: bool = False

    @property
    def elementwise(self) -> bool:
        """The second moment is one number for the tensor."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros; a scalar for the norm."""
        return {**zeros(param, "moments"), "grads_ema": np.zeros((), param.dtype)}

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step; see the class for the equations."""
        if self.maximize:
            grad = -grad
        # A beta of 0 makes the first value the average.
        first, zero = step == 1, xp.zeros_like(hyper["beta1"])
        square = xp.sum(finite_square(xp, grad))
        grads_ema = ema(xp, xp.where(first, zero, hyper["beta2"]), state["grads_ema"], square)
        update = grad / (xp.sqrt(grads_ema) + cast_like(xp, hyper["eps"], param))
        if self.weight_decay:
            update = update + cast_like(xp, hyper["weight_decay"], param) * param
        if self.grad_averaging:
            moments = ema(xp, xp.where(first, zero, hyper["beta1"]), state["moments"], update)
        else:
            moments = cast_like(xp, hyper["beta1"], param) * state["moments"] + update
        return param - cast_like(xp, hyper["lr"], param) * moments, {"moments": moments, "grads_ema": grads_ema}
