"""Steps without the part that only makes the weights longer: AdamP and SGDP."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import fraction, require
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.norms import safe_norm
from edgeopt.optimizers.base import Arrays, Rule, Updated, zeros

__all__ = ["SGDP", "AdamP"]


def _projected(xp: Namespace, param: Array, grad: Array, direction: Array, hyper: Arrays) -> tuple[Array, Array]:
    """The direction without its radial part where the parameter looks scale invariant, and the factor of its decay.

    First each slice along the first dimension is looked at, then the whole tensor: it is scale invariant if the
    cosine between gradient and parameter is below delta/√elements, in every slice.
    """
    eps = cast_like(xp, hyper["eps"], param)
    factor, projected, found = xp.ones_like(hyper["lr"]), direction, None
    for axes in (tuple(range(1, param.ndim)), tuple(range(param.ndim))):
        unit = param / (safe_norm(xp, param, axes) + eps)
        slope = grad / (safe_norm(xp, grad, axes) + eps)
        cosine = xp.abs(xp.sum(slope * unit, axis=axes, keepdims=True))
        size = math.prod(int(param.shape[axis]) for axis in axes)
        invariant = xp.max(cosine) < cast_like(xp, hyper["delta"] / math.sqrt(size), param)
        hit = invariant if found is None else xp.logical_and(invariant, xp.logical_not(found))
        tangential = direction - unit * xp.sum(unit * direction, axis=axes, keepdims=True)
        projected = xp.where(hit, tangential, projected)
        found = hit if found is None else xp.logical_or(found, hit)
        factor = xp.where(found, hyper["wd_ratio"], factor)
    return projected, factor


@dataclass(frozen=True)
class _Projected(Rule):
    """What both rules share: projection, and a decay that is weaker where it applies."""

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay"})

    eps: float = 1e-8
    weight_decay: float = 0.0
    delta: float = 0.1
    wd_ratio: float = 0.1
    nesterov: bool = False
    maximize: bool = False

    @property
    def elementwise(self) -> bool:
        """The projection is one of tensors."""
        return False

    def _moved(self, xp: Namespace, param: Array, grad: Array, direction: Array, rate: Array, hyper: Arrays) -> Array:
        """Project the direction, decay the parameter and take the step."""
        decay = hyper["lr"] * hyper["weight_decay"] * self._decay_scale(hyper) if self.weight_decay else None
        if param.ndim > 1:
            direction, factor = _projected(xp, param, grad, direction, hyper)
            decay = None if decay is None else decay * factor
        if decay is not None:
            param = cast_like(xp, 1.0 - decay, param) * param
        return param - cast_like(xp, rate, param) * direction

    def _decay_scale(self, hyper: Arrays) -> Array | float:
        return 1.0


@dataclass(frozen=True)
class AdamP(_Projected):
    """AdamP (Heo et al., ICLR 2021, arXiv:2006.08217).

    With m and v the moments of Adam::

        p = m / (√v/√(1 - β₂ᵗ) + eps)             with `nesterov` β₁·m + (1 - β₁)·g for m
        p ← p - (θ̂·p)·θ̂,  θ̂ = θ/(‖θ‖ + eps)       where |cos(g, θ)| < delta/√n
        θ ← θ·(1 - lr·weight_decay·w) - lr/(1 - β₁ᵗ)·p

    For tensors of two or more dimensions the second line looks at each slice of n elements along the first dimension
    and applies if it holds for all of them; otherwise it looks at the whole tensor. w is `wd_ratio` where it applies,
    and 1 elsewhere. Slots `exp_avg` (m) and `exp_avg_sq` (v). A weight decay of exactly 0.0 is left out of the graph;
    `maximize` climbs.

    Semantics and defaults of the authors' code and of torch_optimizer.
    """

    beta1: float = 0.9
    beta2: float = 0.999

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the two moments."""
        return zeros(param, "exp_avg", "exp_avg_sq")

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step; √(1 - β₂ᵗ) is moved to the scalars, as in Adam."""
        if self.maximize:
            grad = -grad
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        momentum = ema(xp, hyper["beta1"], exp_avg, grad) if self.nesterov else exp_avg
        direction = momentum / (xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"] * root_bias2, param))
        rate = hyper["lr"] * root_bias2 / bias_correction(xp, hyper["beta1"], step)
        param = self._moved(xp, param, grad, direction, rate, hyper)
        return param, {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}


@dataclass(frozen=True)
class SGDP(_Projected):
    """SGDP (Heo et al., ICLR 2021, arXiv:2006.08217).

    ::

        b ← momentum·b + (1 - dampening)·g
        p = b,  or  g + momentum·b  with nesterov
        p ← p - (θ̂·p)·θ̂,  θ̂ = θ/(‖θ‖ + eps)       where |cos(g, θ)| < delta/√n
        θ ← θ·(1 - lr·weight_decay·w/(1 - momentum)) - lr·p

    The third line and w are those of `AdamP`. Slot `momentum_buffer` is b. A weight decay of exactly 0.0 is left out of
    the graph; `maximize` climbs.

    Semantics and defaults of the paper and of pytorch_optimizer. In the authors' code and in torch_optimizer the
    projection writes into the buffer too, unless there is Nesterov momentum.
    """

    momentum: float = 0.0
    dampening: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("momentum", self.momentum)
        require(not self.nesterov or self.dampening == 0.0, "nesterov needs no dampening")

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum buffer."""
        return zeros(param, "momentum_buffer")

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step; see the class for the equations."""
        if self.maximize:
            grad = -grad
        momentum = cast_like(xp, hyper["momentum"], param)
        buffer = momentum * state["momentum_buffer"] + cast_like(xp, 1.0 - hyper["dampening"], param) * grad
        direction = grad + momentum * buffer if self.nesterov else buffer
        return self._moved(xp, param, grad, direction, hyper["lr"], hyper), {"momentum_buffer": buffer}

    def _decay_scale(self, hyper: Arrays) -> Array | float:
        return 1.0 / (1.0 - hyper["momentum"])
