"""Momentum with a step as long as a model of the loss says: MoMo and MoMo-Adam."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import positive
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.distance import group_norm, total
from edgeopt.optimizers.base import Arrays, Collective, GroupArrays, Rule, UpdatedAll, zeros
from edgeopt.optimizers.ingredients import Ingredient, LossValue
from edgeopt.schedules import Schedule

__all__ = ["MoMo", "MoMoAdam"]

NumpyArray = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class _Momo(Collective, Rule):
    """What both share: averages of the loss and of its linear models, and the step to where those reach the bound."""

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay"})
    any_sign: ClassVar[frozenset[str]] = frozenset({"lower_bound"})

    lower_bound: float = 0.0
    weight_decay: float = 0.0
    adapt_lower_bound: bool = False
    maximize: bool = False

    def init_shared(self, params: Mapping[str, NumpyArray]) -> dict[str, NumpyArray]:
        """Return zeros for the averages, and the lower bound where it adapts."""
        bound = {"bound": np.asarray(self.lower_bound, np.float64)} if self.adapt_lower_bound else {}
        return {"average_loss": np.zeros(()), "average_slope": np.zeros(()), **bound}

    def shared_ingredients(self, params: Mapping[str, NumpyArray]) -> dict[str, Ingredient]:
        """The loss."""
        return {"loss": LossValue()}

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take one step; see the classes for the equations."""
        params, shared = group.params, group.shared
        grads = {name: -grad if self.maximize else grad for name, grad in group.grads.items()}
        loss = (-1.0 if self.maximize else 1.0) * xp.astype(shared["loss"], xp.float64)
        lr, kept, share = hyper["lr"], self._kept(xp, hyper, step), self._share(xp, hyper, step)
        slots = {name: self._averages(xp, kept, grad, group.states[name], hyper, step) for name, grad in grads.items()}
        averages = {name: own["exp_avg"] for name, own in slots.items()}
        directions, square = self._directions(xp, slots, hyper, step)
        averaged_loss = ema(xp, kept, shared["average_loss"], loss)
        averaged_slope = ema(xp, kept, shared["average_slope"], _inner(xp, grads, params))
        slope = _inner(xp, averages, params)
        grown = 1.0 + lr * hyper["weight_decay"] if self.weight_decay else xp.ones_like(lr)
        reach = grown * (averaged_loss - averaged_slope) + slope
        bound = hyper["lower_bound"]
        if self.adapt_lower_bound:
            last = xp.where(step == 1, bound, shared["bound"])
            lowered = xp.maximum(reach / (2.0 * share * grown), bound)
            bound = xp.where(reach < grown * share * last, lowered, last)
        moving = square > 0
        needed = xp.maximum(reach - grown * share * bound, xp.zeros_like(reach))
        needed = needed / xp.where(moving, square, xp.ones_like(square))
        rate = xp.where(moving, xp.minimum(lr / share, needed), xp.zeros_like(square))
        moved = {}
        for name, param in params.items():
            shrunk = cast_like(xp, 1.0 / grown, param) * param if self.weight_decay else param
            moved[name] = shrunk - cast_like(xp, rate, param) * directions[name]
        new = {"average_loss": averaged_loss, "average_slope": averaged_slope}
        if self.adapt_lower_bound:
            reached = (averaged_loss + slope - averaged_slope - 0.5 * rate * square) / share
            new["bound"] = xp.maximum(reached, hyper["lower_bound"])
        return moved, slots, new

    @abstractmethod
    def _kept(self, xp: Namespace, hyper: Arrays, step: Array) -> Array:
        """The share of an average that a step keeps."""

    @abstractmethod
    def _share(self, xp: Namespace, hyper: Arrays, step: Array) -> Array:
        """The weight that averages have collected."""

    @abstractmethod
    def _averages(
        self, xp: Namespace, kept: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array
    ) -> dict[str, Array]:
        """The next slots of a parameter."""

    @abstractmethod
    def _directions(
        self, xp: Namespace, slots: Mapping[str, Arrays], hyper: Arrays, step: Array
    ) -> tuple[dict[str, Array], Array]:
        """Where a step leads, and the product of that with the averaged gradients."""


@dataclass(frozen=True)
class MoMo(_Momo):
    """MoMo (Schaipp, Ohana, Eickenberg, Defazio and Gower, ICML 2024, arXiv:2305.07583): momentum, and Polyak's step.

    With f the mean loss of the batch, products over all parameters of a group, L = `lower_bound`, and β = 0 at the
    first update::

        m ← β·m + (1 - β)·g
        a ← β·a + (1 - β)·f
        s ← β·s + (1 - β)·⟨g, θ⟩
        k = 1 + lr·weight_decay
        τ = min(lr, max(k·(a - s - L) + ⟨m, θ⟩, 0)/‖m‖²)
        θ ← θ/k - τ·m

    τ leads to where the average of the loss's linear models reaches the bound, and is at most the rate. With
    `adapt_lower_bound` there is a bound L for each update, from `lower_bound` upwards::

        r = k·(a - s) + ⟨m, θ⟩
        L ← max(r/(2·k), lower_bound) where r < k·L, before τ is computed
        L ← max(a - s + ⟨m, θ⟩ - τ·‖m‖²/2, lower_bound) after that

    Slots `exp_avg` (m), and, shared, `average_loss` (a), `average_slope` (s) and, where it adapts, `bound` (L). A
    weight decay of exactly 0.0 is left out of the graph. `maximize` negates loss and gradient first, and `lower_bound`
    is that of the negated loss. Groups see the same loss, and take steps of their own.

    Semantics and defaults of `optax.contrib.momo`, which takes no step where ‖m‖² is below 2.2e-16; here only where it
    is zero.

    Raises:
        ConfigurationError: A number out of its range.
    """

    lr: Schedule | float = 1.0
    beta: float = 0.9

    def init(self, param: NumpyArray) -> dict[str, NumpyArray]:
        """Return zeros for the average."""
        return zeros(param, "exp_avg")

    def _kept(self, xp: Namespace, hyper: Arrays, step: Array) -> Array:
        return xp.where(step == 1, xp.zeros_like(hyper["beta"]), hyper["beta"])

    def _share(self, xp: Namespace, hyper: Arrays, step: Array) -> Array:
        return xp.ones_like(hyper["beta"])

    def _averages(
        self, xp: Namespace, kept: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array
    ) -> dict[str, Array]:
        return {"exp_avg": ema(xp, kept, state["exp_avg"], grad)}

    def _directions(
        self, xp: Namespace, slots: Mapping[str, Arrays], hyper: Arrays, step: Array
    ) -> tuple[dict[str, Array], Array]:
        averages = {name: own["exp_avg"] for name, own in slots.items()}
        return averages, group_norm(xp, list(averages.values())) ** 2.0


@dataclass(frozen=True)
class MoMoAdam(_Momo):
    """MoMo-Adam (Schaipp, Ohana, Eickenberg, Defazio and Gower, ICML 2024, arXiv:2305.07583): Adam, and Polyak's step.

    With f the mean loss of the batch, products over all parameters of a group, and L = `lower_bound`::

        m ← β₁·m + (1 - β₁)·g
        v ← β₂·v + (1 - β₂)·g²
        a ← β₁·a + (1 - β₁)·f
        s ← β₁·s + (1 - β₁)·⟨g, θ⟩
        w = √(v/(1 - β₂ᵗ)) + eps
        k = 1 + lr·weight_decay,  b = 1 - β₁ᵗ
        τ = min(lr/b, max(k·(a - s - b·L) + ⟨m, θ⟩, 0)/⟨m, m/w⟩)
        θ ← θ/k - τ·m/w

    With `adapt_lower_bound` there is a bound L for each update, from `lower_bound` upwards::

        r = k·(a - s) + ⟨m, θ⟩
        L ← max(r/(2·b·k), lower_bound) where r < k·b·L, before τ is computed
        L ← max((a - s + ⟨m, θ⟩ - τ·⟨m, m/w⟩/2)/b, lower_bound) after that

    Slots `exp_avg` (m) and `exp_avg_sq` (v), and, shared, `average_loss` (a), `average_slope` (s) and, where it adapts,
    `bound` (L). Weight decay, `maximize` and groups are as in `momo`.

    Semantics and defaults of `optax.contrib.momo_adam`, which takes no step where ⟨m, m/w⟩ is below 2.2e-16; here only
    where it is zero.

    Raises:
        ConfigurationError: A number out of its range.
    """

    lr: Schedule | float = 1e-2
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("eps", self.eps)

    def init(self, param: NumpyArray) -> dict[str, NumpyArray]:
        """Return zeros for the averages."""
        return zeros(param, "exp_avg", "exp_avg_sq")

    def _kept(self, xp: Namespace, hyper: Arrays, step: Array) -> Array:
        return hyper["beta1"]

    def _share(self, xp: Namespace, hyper: Arrays, step: Array) -> Array:
        return bias_correction(xp, hyper["beta1"], step)

    def _averages(
        self, xp: Namespace, kept: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array
    ) -> dict[str, Array]:
        return {
            "exp_avg": ema(xp, kept, state["exp_avg"], grad),
            "exp_avg_sq": ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad),
        }

    def _directions(
        self, xp: Namespace, slots: Mapping[str, Arrays], hyper: Arrays, step: Array
    ) -> tuple[dict[str, Array], Array]:
        correction = bias_correction(xp, hyper["beta2"], step)
        directions = {}
        for name, own in slots.items():
            average = own["exp_avg"]
            root = xp.sqrt(own["exp_avg_sq"] / cast_like(xp, correction, average))
            directions[name] = average / (root + cast_like(xp, hyper["eps"], average))
        return directions, _inner(xp, {name: own["exp_avg"] for name, own in slots.items()}, directions)


def _inner(xp: Namespace, left: Arrays, right: Arrays) -> Array:
    """The sum of the products of all elements, in float64."""
    return total(xp, [xp.sum(value * right[name]) for name, value in left.items()])
