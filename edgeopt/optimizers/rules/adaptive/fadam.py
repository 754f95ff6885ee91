"""Adam as a natural gradient by the diagonal of the empirical Fisher information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import positive
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.arithmetic.norms import count, safe_norm
from edgeopt.optimizers.base import Arrays, Rule, Updated, zeros

__all__ = ["FAdam"]


@dataclass(frozen=True)
class FAdam(Rule):
    """FAdam (Hwang 2024, arXiv:2405.12807).

    With RMS over the tensor and b = (β₂ᵗ - β₂)/(β₂ᵗ - 1), which needs no correction of the bias::

        F ← b·F + (1 - b)·g²
        e = min(eps, eps2·RMS(g)), or eps where RMS(g) = 0
        f = Fᵖ + e²ᵖ
        u = g/f,  u ← u/max(1, RMS(u)/clip)
        m ← β₁·m + (1 - β₁)·u
        w = θ/f,  w ← w/max(1, RMS(w)/clip)
        θ ← θ - lr·(m + weight_decay·w)

    Slots `momentum` (m) and `fim` (F). A weight decay of exactly 0.0 is left out of the graph; `maximize` climbs.

    Semantics and defaults of pytorch_optimizer.

    Raises:
        ConfigurationError: A number out of its range; `clip`, `p` and `eps` must be above 0.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay"})

    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.1
    clip: float = 1.0
    p: float = 0.5
    eps: float = 1e-8
    eps2: float = 0.01
    maximize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("clip", "p", "eps"):
            positive(name, getattr(self, name))

    @property
    def elementwise(self) -> bool:
        """Sizes are those of the tensor."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum and the Fisher information."""
        return zeros(param, "momentum", "fim")

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step; see the class for the equations."""
        if self.maximize:
            grad = -grad
        power = hyper["beta2"] ** xp.astype(step, xp.float64)
        fim = ema(xp, (power - hyper["beta2"]) / (power - 1.0), state["fim"], grad * grad)

        size = xp.astype(_rms(xp, grad), xp.float64)
        eps = xp.where(size > 0, xp.minimum(hyper["eps"], hyper["eps2"] * size), hyper["eps"])
        # Powers of the smallest numbers may vanish in the dtype of the parameter, and θ/f would be infinite.
        least = xp.asarray(float(xp.finfo(param.dtype).max) ** -0.75, dtype=param.dtype)
        base = fim ** cast_like(xp, hyper["p"], param) + cast_like(xp, eps ** (2.0 * hyper["p"]), param)
        base = xp.maximum(base, least)

        momentum = ema(xp, hyper["beta1"], state["momentum"], _clipped(xp, grad / base, hyper["clip"]))
        step_ = momentum
        if self.weight_decay:
            decay = _clipped(xp, param / base, hyper["clip"])
            step_ = step_ + cast_like(xp, hyper["weight_decay"], param) * decay
        return param - cast_like(xp, hyper["lr"], param) * step_, {"momentum": momentum, "fim": fim}


def _rms(xp: Namespace, x: Array) -> Array:
    """The root of the mean square of all elements, for numbers whose squares may overflow or vanish."""
    flat = xp.reshape(x, (-1,))
    return xp.max(safe_norm(xp, flat, (0,))) / xp.sqrt(count(xp, flat))


def _clipped(xp: Namespace, x: Array, clip: Array) -> Array:
    """The array, scaled down where its root mean square is above `clip`."""
    size = _rms(xp, x) / cast_like(xp, clip, x)
    return x / xp.maximum(size, xp.ones_like(size))
