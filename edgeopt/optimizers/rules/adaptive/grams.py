"""Adam's magnitudes with the gradient's signs."""

from __future__ import annotations

from dataclasses import dataclass

from edgeopt.array_types import Array, Namespace
from edgeopt.optimizers.base import Arrays, Updated
from edgeopt.optimizers.rules.adaptive.adam import Adam
from edgeopt.optimizers.rules.descent import Decay

__all__ = ["Grams"]


@dataclass(frozen=True)
class Grams(Adam):
    """Grams (Cao, Li and Song 2024, arXiv:2412.17107).

    With Δ the step of `Adam`::

        θ ← θ - |Δ|·sign(g)

    Semantics and defaults of the paper and of pytorch_optimizer.
    """

    eps: float = 1e-6
    decay: Decay = "before"

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        delta, slots = super().delta(xp, param, grad, state, hyper, step)
        return xp.abs(delta) * xp.sign(grad), slots
