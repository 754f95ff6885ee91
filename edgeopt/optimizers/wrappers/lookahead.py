"""A slow copy that the parameter is drawn back to: Lookahead, and Ranger, which has it built in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, fraction
from edgeopt.optimizers.arithmetic.timing import is_multiple
from edgeopt.optimizers.base import Arrays, Updated, static
from edgeopt.optimizers.rules.adaptive.radam import RAdam
from edgeopt.optimizers.rules.descent import Decay
from edgeopt.optimizers.wrappers.wrapper import Following, beside

__all__ = ["Lookahead", "Ranger"]


def _drawn_back(xp: Namespace, param: Array, slow: Array, alpha: Array, due: Array) -> tuple[Array, Array]:
    """Where it is due, the slow copy moves towards the parameter, which then starts anew from there."""
    share = xp.where(due, alpha, xp.zeros_like(alpha))
    slow = slow + cast_like(xp, share, param) * (param - slow)
    return xp.where(due, slow, param), slow


@dataclass(frozen=True)
class Lookahead(Following):
    """Lookahead around another optimizer (Zhang et al., NeurIPS 2019, arXiv:1907.08610).

    The inner optimizer updates θ and keeps its state. After every `k` updates::

        s ← s + alpha·(θ - s)
        θ ← s

    Slots are those of the inner optimizer and `slow_param` (s), which begins as the parameter. The hyperparameter of
    alpha is called `lookahead.alpha`; the others and the learning rate are the inner optimizer's.

    Semantics of pytorch_optimizer, with the paper's defaults.

    Raises:
        ConfigurationError: A number out of its range, or `inner` is no optimizer.
    """

    k: int = static(5)
    alpha: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("k", self.k, 1)
        fraction("alpha", self.alpha, closed=True)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the slots of the inner optimizer, and the parameter for the slow copy."""
        return beside(super().init(param), {"slow_param": param.copy()})

    def hyperparameters(self) -> dict[str, float]:
        """Return the numbers of the inner optimizer, and alpha."""
        return beside(super().hyperparameters(), {"lookahead.alpha": float(self.alpha)})

    def follow(
        self, xp: Namespace, param: Array, slots: dict[str, Array], state: Arrays, hyper: Arrays, step: Array
    ) -> Updated:
        """Draw the parameter back where it is due."""
        due = is_multiple(xp, step, self.k)
        param, slow = _drawn_back(xp, param, state["slow_param"], hyper["lookahead.alpha"], due)
        return param, {**slots, "slow_param": slow}


@dataclass(frozen=True)
class Ranger(RAdam):
    """Ranger (Wright 2019): RAdam and Lookahead, with centralised gradients (Yong et al., ECCV 2020, arXiv:2004.01461).

    The gradient of a tensor of two or more dimensions is centralised first; then comes the step of `RAdam`, with its
    weight decay beside the gradient, and after every `k` steps that of `Lookahead`::

        g ← g - mean(g, all dimensions but the first)
        θ ← RAdam(θ, g)
        s ← s + alpha·(θ - s),  θ ← s

    Slots `exp_avg` and `exp_avg_sq` of RAdam, and `slow_param` (s), which begins as the parameter.

    Semantics and defaults of pytorch_optimizer with `degenerated_to_sgd=True`; its own default ascends at first.
    """

    beta1: float = 0.95
    eps: float = 1e-5
    k: int = static(6)
    alpha: float = 0.5
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("k", self.k, 1)
        fraction("alpha", self.alpha, closed=True)

    @property
    def elementwise(self) -> bool:
        """Centralisation averages over the tensor."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the moments, and the parameter for the slow copy."""
        return {**super().init(param), "slow_param": param.copy()}

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step; see the class for the equations."""
        if param.ndim > 1:
            grad = grad - xp.mean(grad, axis=tuple(range(1, param.ndim)), keepdims=True)
        param, slots = super().update(xp, param, grad, state, hyper, step)
        param, slow = _drawn_back(xp, param, state["slow_param"], hyper["alpha"], is_multiple(xp, step, self.k))
        return param, {**slots, "slow_param": slow}
