"""Second-order steps in a random subspace, without a backward pass: SOFO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, positive
from edgeopt.optimizers.arithmetic.matrices import identity, inverse_root, largest_eigenvalue, transposed
from edgeopt.optimizers.base import Arrays, Collective, GroupArrays, Rule, UpdatedAll, static
from edgeopt.optimizers.ingredients import GaussNewtonSketch, Ingredient, Tangents
from edgeopt.schedules import Schedule

__all__ = ["SOFO"]

NumpyArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class SOFO(Collective, Rule):
    """SOFO (Yu, Xia, Ma, Lengyel and Hennequin, NeurIPS 2024): Gauss-Newton in a random subspace, in forward mode.

    At each update `tangents` directions vᵢ over all parameters of the group together are drawn from the normal
    distribution and scaled to length 1. The model's output answers them with the derivatives tᵢ, and ::

        Aᵢⱼ = the mean over the batch of tᵢᵀ·H·tⱼ,  sᵢ = the mean of ∂loss/∂vᵢ = ⟨∂loss/∂output, tᵢ⟩
        c = (A + damping·λ·1)⁻¹·s        λ the largest eigenvalue of A, H the Hessian of the loss by the output
        θ ← θ - lr·Σ cᵢ·vᵢ

    There are no slots. Each tangent costs a pass through the model and, while the update lasts, a copy of the
    parameters. The gradient is not used: where the rule has all parameters, a bundle does not compute it in `step`.
    A batch without curvature moves nothing. `maximize` climbs.

    Semantics of the paper; the linear system is solved as it stands, by matrix products in float64, where the authors
    go by the singular values. A damping below 1e-10 counts as that.
    """

    lr: Schedule | float = 0.1
    damping: float = 1e-5
    tangents: int = static(100)
    maximize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("damping", self.damping)
        at_least("tangents", self.tangents, 1)

    @property
    def elementwise(self) -> bool:
        """The directions span all parameters, but each has a part of its own."""
        return False

    def ingredients(self, param: NumpyArray) -> dict[str, Ingredient]:
        """The parameter's part of the directions."""
        return {"tangents": Tangents((self.tangents, *param.shape))}

    def shared_ingredients(self, params: Mapping[str, NumpyArray]) -> dict[str, Ingredient]:
        """Curvature and slopes."""
        return {"sketch": GaussNewtonSketch(count=self.tangents, tangents="tangents")}

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take one step; see the class for the equations."""
        count = self.tangents
        rows = {name: xp.reshape(group.states[name]["tangents"], (count, -1)) for name in group.params}
        squares = [xp.astype(xp.sum(part * part, axis=1, keepdims=True), xp.float64) for part in rows.values()]
        length = xp.sqrt(sum(squares[1:], squares[0]))
        sketch = xp.astype(group.shared["sketch"], xp.float64)
        curvature = xp.take(sketch, xp.asarray(np.arange(count)), axis=1) / (length * transposed(xp, length))
        slopes = xp.take(sketch, xp.asarray(np.asarray([count])), axis=1) / length
        coefficients = _solution(xp, curvature, slopes, hyper["damping"]) / length
        rates = transposed(xp, (-1.0 if self.maximize else 1.0) * hyper["lr"] * coefficients)
        moved = {}
        for name, param in group.params.items():
            step = xp.matmul(cast_like(xp, rates, param), rows[name])
            moved[name] = param - xp.reshape(step, tuple(param.shape))
        return moved, {name: {} for name in group.params}, {}


def _solution(xp: Namespace, curvature: Array, slopes: Array, damping: Array) -> Array:
    """The damped solution of a symmetric system, zero where there is no curvature."""
    symmetric = 0.5 * (curvature + transposed(xp, curvature))
    largest = largest_eigenvalue(xp, symmetric)
    some = largest > 0
    scaled = symmetric / xp.where(some, largest, xp.ones_like(largest))
    damped = scaled + xp.maximum(damping, 1e-10 + 0.0 * damping) * identity(xp, int(slopes.shape[0]))
    found = xp.matmul(inverse_root(xp, damped, 1), slopes) / xp.where(some, largest, xp.ones_like(largest))
    return xp.where(some, found, xp.zeros_like(found))
