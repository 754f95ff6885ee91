"""Rules that need no schedule: an average of the iterates takes its place."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import positive
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Rule, Updated
from edgeopt.optimizers.rules.adaptive.radam import rectification
from edgeopt.schedules import Schedule

__all__ = ["ScheduleFree", "ScheduleFreeAdamW", "ScheduleFreeRAdam", "ScheduleFreeSGD"]


@dataclass(frozen=True, kw_only=True)
class ScheduleFree(Rule):
    """Schedule-free averaging around a direction u (Defazio et al., NeurIPS 2024, arXiv:2405.15682).

    The parameter is y, where gradients are taken; z takes the steps; the average x of all z is what is evaluated,
    predicted with and exported. Only y and z are kept::

        lr' = lr·min(1, t/warmup_steps)
        w = tʳ·(max lr')^weight_lr_power,  W ← W + w,  c = w/W
        y ← y + c·(z - y) - lr'·(1 - β₁·(1 - c))·(u + weight_decay·y)
        z ← z - lr'·(u + weight_decay·y)            with the y of before
        x = y + (1 - 1/β₁)·(z - y)

    That is x ← (1 - c)·x + c·z and y = β₁·x + (1 - β₁)·z. Slots `z`, which begins as the parameter, `lr_max` (max lr')
    and `weight_sum` (W). While all rates were 0, c is 0. A weight decay of exactly 0.0 is left out of the graph;
    `maximize` climbs. A constant learning rate is meant, with a rise over `warmup_steps`.

    Running statistics of a batch normalisation belong to y; recompute them in evaluation where they matter.

    A rule implements `direction`.

    Raises:
        ConfigurationError: A number out of its range; beta1 must be above 0.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay", "warmup_steps"})

    beta1: float = 0.9
    weight_decay: float = 0.0
    warmup_steps: float = 0.0
    r: float = 0.0
    weight_lr_power: float = 2.0
    maximize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("beta1", self.beta1)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the parameter for z, and zeros for the scalars."""
        return {"z": param.copy(), "lr_max": np.zeros(()), "weight_sum": np.zeros(())}

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step; see the class for the equations."""
        if self.maximize:
            grad = -grad
        count = xp.astype(step, xp.float64)
        rate = hyper["lr"]
        if self.warmup_steps:
            rate = rate * xp.minimum(count / hyper["warmup_steps"], xp.ones_like(count))
        rate, direction, slots = self.direction(xp, rate, grad, state, hyper, step)
        if self.weight_decay:
            direction = direction + cast_like(xp, hyper["weight_decay"], param) * param

        lr_max = xp.maximum(state["lr_max"], rate)
        weight = count ** hyper["r"] * lr_max ** hyper["weight_lr_power"]
        weight_sum = state["weight_sum"] + weight
        started = weight_sum > 0
        share = xp.where(started, weight / xp.where(started, weight_sum, xp.ones_like(weight_sum)), weight_sum)

        z = state["z"]
        own = cast_like(xp, rate * (1.0 - hyper["beta1"] * (1.0 - share)), param)
        moved = param + cast_like(xp, share, param) * (z - param) - own * direction
        return moved, {
            "z": z - cast_like(xp, rate, param) * direction,
            "lr_max": lr_max,
            "weight_sum": weight_sum,
            **slots,
        }

    def view(self, xp: Namespace, param: Array, state: Arrays, hyper: Arrays, step: Array) -> Array:
        """Return the average x."""
        return param + cast_like(xp, 1.0 - 1.0 / hyper["beta1"], param) * (state["z"] - param)

    @abstractmethod
    def direction(
        self, xp: Namespace, rate: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array
    ) -> tuple[Array, Array, dict[str, Array]]:
        """Return lr', which may be another than that given, the direction u, and the next value of the own slots."""


@dataclass(frozen=True)
class ScheduleFreeSGD(ScheduleFree):
    """Schedule-free SGD (Defazio et al., NeurIPS 2024, arXiv:2405.15682).

    With the averages of the class `ScheduleFree`, which keep z and evaluate x::

        u = g
        z ← z - lr'·(u + weight_decay·y)
        x ← (1 - c)·x + c·z
        y = β₁·x + (1 - β₁)·z

    Semantics and defaults of the package schedulefree, which calls β₁ the momentum.
    """

    lr: Schedule | float = 1.0

    def direction(
        self, xp: Namespace, rate: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array
    ) -> tuple[Array, Array, dict[str, Array]]:
        """Return the gradient as it is."""
        return rate, grad, {}


@dataclass(frozen=True)
class ScheduleFreeAdamW(ScheduleFree):
    """Schedule-free AdamW (Defazio et al., NeurIPS 2024, arXiv:2405.15682).

    With the averages of the class `ScheduleFree`, which keep z and evaluate x::

        v ← β₂·v + (1 - β₂)·g²
        u = g/(√(v/(1 - β₂ᵗ)) + eps)
        z ← z - lr'·(u + weight_decay·y)
        x ← (1 - c)·x + c·z
        y = β₁·x + (1 - β₁)·z

    Slot `exp_avg_sq` (v) beside those of the average.

    Semantics and defaults of the package schedulefree.
    """

    lr: Schedule | float = 2.5e-3
    beta2: float = 0.999
    eps: float = 1e-8

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the slots of the average, and zeros for the second moment."""
        return {**super().init(param), "exp_avg_sq": np.zeros_like(param)}

    def direction(
        self, xp: Namespace, rate: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array
    ) -> tuple[Array, Array, dict[str, Array]]:
        """Return the gradient over the root of its second moment."""
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        return rate, self._normalised(xp, grad, exp_avg_sq, hyper, step), {"exp_avg_sq": exp_avg_sq}

    @staticmethod
    def _normalised(xp: Namespace, grad: Array, exp_avg_sq: Array, hyper: Arrays, step: Array) -> Array:
        # Both sides of the fraction are multiplied by √(1 - β₂ᵗ), which turns a pass over a tensor into scalars.
        root = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        eps = cast_like(xp, hyper["eps"] * root, grad)
        return cast_like(xp, root, grad) * grad / (xp.sqrt(exp_avg_sq) + eps)


@dataclass(frozen=True)
class ScheduleFreeRAdam(ScheduleFreeAdamW):
    """Schedule-free RAdam (schedulefree 1.4, with Liu et al., ICLR 2020, arXiv:1908.03265): no warm-up to choose.

    As `ScheduleFreeAdamW`, with the rectification r of `RAdam` in the rate that steps and averages see::

        lr' = lr·r,  u = g/(√(v/(1 - β₂ᵗ)) + eps)    where n > 4
        lr' = 0                                      before

    Until n > 4, which takes five steps with the default β₂, nothing moves; with `silent_sgd_phase=False` these steps
    are taken with lr' = lr and u = g.

    Semantics and defaults of the package schedulefree.
    """

    silent_sgd_phase: bool = True

    def direction(
        self, xp: Namespace, rate: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array
    ) -> tuple[Array, Array, dict[str, Array]]:
        """Return the rectified rate, and the direction of AdamW or, early, the gradient."""
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        tractable, factor = rectification(xp, hyper["beta2"], step, threshold=4.0)
        direction = self._normalised(xp, grad, exp_avg_sq, hyper, step)
        if not self.silent_sgd_phase:
            direction = xp.where(tractable, direction, grad)
        rate = xp.where(tractable, rate * factor, xp.zeros_like(rate) if self.silent_sgd_phase else rate)
        return rate, direction, {"exp_avg_sq": exp_avg_sq}
