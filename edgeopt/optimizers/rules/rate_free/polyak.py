"""SGD whose step is as long as the loss is far from its lowest value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import positive, require
from edgeopt.optimizers.arithmetic.distance import group_norm
from edgeopt.optimizers.base import Arrays, Collective, GroupArrays, Rule, UpdatedAll
from edgeopt.optimizers.ingredients import Ingredient, LossValue
from edgeopt.schedules import Schedule

__all__ = ["PolyakSGD"]

#: What becomes of a loss below the bound.
Variant: TypeAlias = Literal["sps", "sps+"]


@dataclass(frozen=True)
class PolyakSGD(Collective, Rule):
    """SGD with Polyak's step (Loizou, Vaswani, Laradji and Lacoste-Julien, AISTATS 2021, arXiv:2002.10542).

    With f the mean loss of the batch, the norm over all parameters of a group, and L = `lower_bound`::

        θ ← θ - min((f - L)/(c·‖g‖² + eps), lr)·g

    The rate is the largest one allowed. A loss below the bound makes the step negative, unless the variant is "sps+",
    for which it is then zero (Garrigos, Gower and Schaipp 2023, arXiv:2307.14528). There are no slots. A gradient of
    zero moves nothing. `maximize` negates loss and gradient first, and `lower_bound` is that of the negated loss.
    Groups see the same loss, and take steps of their own.

    Semantics of `optax.polyak_sgd`, whose `scaling` s acts as c = s does here, with lr = s·max_learning_rate and its
    eps divided by s. It takes no step where ‖g‖² is below 2.2e-16; here only where it is zero.

    Raises:
        ConfigurationError: A number out of its range, or an unknown variant.
    """

    any_sign: ClassVar[frozenset[str]] = frozenset({"lower_bound"})

    lr: Schedule | float = 1.0
    c: float = 1.0
    lower_bound: float = 0.0
    eps: float = 0.0
    variant: Variant = "sps"
    maximize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("c", self.c)
        variants = get_args(Variant)
        require(self.variant in variants, f"variant must be one of {', '.join(variants)}, got {self.variant!r}")

    def shared_ingredients(self, params: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Ingredient]:
        """The loss."""
        return {"loss": LossValue()}

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take one step; see the class for the equations."""
        sign = -1.0 if self.maximize else 1.0
        square = group_norm(xp, list(group.grads.values())) ** 2.0
        gap = sign * xp.astype(group.shared["loss"], xp.float64) - hyper["lower_bound"]
        if self.variant == "sps+":
            gap = xp.maximum(gap, xp.zeros_like(gap))
        moving = square > 0
        needed = gap / xp.where(moving, hyper["c"] * square + hyper["eps"], xp.ones_like(square))
        rate = sign * xp.where(moving, xp.minimum(needed, hyper["lr"]), xp.zeros_like(square))
        moved = {name: param - cast_like(xp, rate, param) * group.grads[name] for name, param in group.params.items()}
        return moved, {name: {} for name in group.params}, {}
