"""Steps of a fixed relative length."""

from __future__ import annotations

from dataclasses import dataclass

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.norms import norm, trust_ratio
from edgeopt.optimizers.base import Arrays, Rule, Updated
from edgeopt.schedules import Schedule

__all__ = ["Fromage"]


@dataclass(frozen=True)
class Fromage(Rule):
    """Fromage (Bernstein et al., NeurIPS 2020, arXiv:2002.03432).

    ::

        θ ← (θ - lr·g·‖θ‖/‖g‖)/√(1 + lr²)

    The ratio of the norms is 1 where one of them is zero. There is no state. `maximize` climbs.

    Semantics of the authors' code and of pytorch_optimizer.
    """

    lr: Schedule | float = 1e-2
    maximize: bool = False

    @property
    def elementwise(self) -> bool:
        """The ratio of the norms is one number for the tensor."""
        return False

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step; see the class for the equations."""
        if self.maximize:
            grad = -grad
        lr = hyper["lr"]
        shrink = 1.0 / xp.sqrt(1.0 + lr * lr)
        ratio = trust_ratio(xp, norm(xp, param), norm(xp, grad))
        return cast_like(xp, shrink, param) * param - cast_like(xp, shrink * lr, param) * ratio * grad, {}
