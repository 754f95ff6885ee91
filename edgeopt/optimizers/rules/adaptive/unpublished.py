"""Rules that are known by a name only: no paper gives their equations, so these docstrings do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import require
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.arithmetic.norms import finite_square, norm
from edgeopt.optimizers.base import Arrays, Updated
from edgeopt.optimizers.rules.adaptive.adam import Adam
from edgeopt.optimizers.rules.adaptive.adamax import Adamax

__all__ = ["AMacP", "AdaMaxPlus", "EVAVariance"]


@dataclass(frozen=True)
class AdaMaxPlus(Adamax):
    """AdaMaxPlus, a name without a paper: `Adamax` with a bound on the norm, or with one norm for the tensor.

    ::

        m ← β₁·m + (1 - β₁)·g
        u ← max(β₂·u, min(|g|, clip_inf) + eps)       with `scalar_norm` the largest over the tensor
        θ ← θ - lr/(1 - β₁ᵗ) · m/u

    Slots `exp_avg` (m) and `exp_inf` (u; a single number for each tensor with `scalar_norm`).

    Semantics of this project; with a `clip_inf` that no gradient reaches, those of `torch.optim.Adamax`.
    """

    clip_inf: float = 10.0
    scalar_norm: bool = False

    @property
    def elementwise(self) -> bool:
        """Whether each element has a norm of its own, and is updated alone."""
        return super().elementwise and not self.scalar_norm

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the first moment and the norm."""
        slots = super().init(param)
        return {**slots, "exp_inf": np.zeros((1,) * param.ndim, param.dtype)} if self.scalar_norm else slots

    def _size(self, xp: Namespace, grad: Array, hyper: Arrays) -> Array:
        size = xp.abs(grad)
        if self.scalar_norm and grad.ndim:
            size = xp.max(size, axis=tuple(range(grad.ndim)), keepdims=True)
        return xp.minimum(size, cast_like(xp, hyper["clip_inf"], grad))


@dataclass(frozen=True)
class EVAVariance(Adam):
    """EVA, "exponential moving average with variance adaptation", a name without a paper: Adam, slower where it varies.

    The step of `Adam`, with the rate of each tensor divided by how much its gradient varies within it::

        a = min(max(1/(1 + sensitivity·√(Var(g) + eps)), least), most)
        θ ← θ - a·lr·(the step of Adam)

    Var is the mean of the squared differences from the mean, 0 for a scalar. Slots `exp_avg` and `exp_avg_sq`, as
    in Adam. `Eva` is something else.

    Semantics of this project; with a sensitivity of 0, those of `torch.optim.Adam`.

    Raises:
        ConfigurationError: A number out of its range.
    """

    sensitivity: float = 1.0
    least: float = 0.1
    most: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.least <= self.most, f"least must not exceed most, got {self.least!r} and {self.most!r}")

    @property
    def elementwise(self) -> bool:
        """The variance is that of the tensor."""
        return False

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        delta, slots = super().delta(xp, param, grad, state, hyper, step)
        variance = xp.mean(finite_square(xp, grad - xp.mean(grad)))
        spread = xp.sqrt(variance + cast_like(xp, hyper["eps"], param))
        factor = 1.0 / (1.0 + cast_like(xp, hyper["sensitivity"], param) * spread)
        factor = xp.maximum(factor, cast_like(xp, hyper["least"], param))
        return xp.minimum(factor, cast_like(xp, hyper["most"], param)) * delta, slots


@dataclass(frozen=True)
class AMacP(Adam):
    """AMacP, our reading of a paper whose equations we have not seen (Cyber Security and Applications 3, 2025).

    Its abstract says that the step adapts to the average of both moments and of consecutive parameters. Here it is
    Adam with a factor f for each tensor, which follows how far consecutive parameters are apart, r = ‖θ - θ₋₁‖/‖θ‖::

        c = 0.5 where r > high,  1.5 where r < low,  1 elsewhere and at the first step
        f ← β₃·f + (1 - β₃)·c
        θ ← θ - f·lr·(the step of Adam)

    Evaluation, prediction and the exported model use ½·(θ + θ₋₁). Slots `exp_avg` and `exp_avg_sq` of Adam,
    `last_param` (θ₋₁), which begins as the parameter, and `factor` (f), which begins as 1.

    Semantics of this project, and experimental: there is nothing to compare it with.

    Raises:
        ConfigurationError: A number out of its range.
    """

    beta3: float = 0.9
    low: float = 0.01
    high: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.low <= self.high, f"low must not exceed high, got {self.low!r} and {self.high!r}")

    @property
    def elementwise(self) -> bool:
        """The factor is that of the tensor."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the slots of Adam, the parameter, and 1 for the factor."""
        return {**super().init(param), "last_param": param.copy(), "factor": np.ones((), param.dtype)}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        delta, slots = super().delta(xp, param, grad, state, hyper, step)
        size, moved = norm(xp, param), norm(xp, param - state["last_param"])
        one = xp.ones_like(size)
        known = xp.logical_and(step > 1, size > 0)
        ratio = moved / xp.where(known, size, one)
        low, high = (cast_like(xp, hyper[name], param) for name in ("low", "high"))
        choice = xp.where(ratio > high, 0.5 * one, xp.where(ratio < low, 1.5 * one, one))
        factor = ema(xp, hyper["beta3"], state["factor"], xp.where(known, choice, one))
        return factor * delta, {**slots, "last_param": param, "factor": factor}

    def view(self, xp: Namespace, param: Array, state: Arrays, hyper: Arrays, step: Array) -> Array:
        """Return the mean of the parameter and the one before."""
        return param + 0.5 * (state["last_param"] - param)
