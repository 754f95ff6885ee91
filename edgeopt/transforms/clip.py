"""Gradient clipping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgeopt.array_types import Array, Namespace, cast_like, is_half
from edgeopt.checks import at_least
from edgeopt.transforms.base import Transform

__all__ = ["ClipByGlobalNorm", "ClipByValue"]


@dataclass(frozen=True)
class ClipByValue(Transform):
    """Clamp every element of every gradient to [-clip_value, clip_value]. NaN stays NaN.

    Same as `torch.nn.utils.clip_grad_value_`.
    """

    clip_value: float

    def __post_init__(self) -> None:
        at_least("clip_value", self.clip_value, 0.0)

    def hyperparameters(self) -> dict[str, float]:
        """Return the bound."""
        return {"clip_value": float(self.clip_value)}

    def __call__(
        self,
        xp: Namespace,
        grads: Sequence[Array],
        params: Sequence[Array],
        hyper: Mapping[str, Array],
        step: Array,
    ) -> tuple[list[Array], dict[str, Array]]:
        """Return the clamped gradients and no metric."""
        bound = hyper["clip_value"]
        return [xp.clip(g, cast_like(xp, -bound, g), cast_like(xp, bound, g)) for g in grads], {}


@dataclass(frozen=True)
class ClipByGlobalNorm(Transform):
    """Scale all gradients by one factor so that their joint Euclidean norm is at most `max_norm`.

    ::

        n = √(Σ ‖g‖²),   g ← g·min(1, max_norm/(n + 1e-6))

    The metric `grad_norm` is n, before clipping. The factor is applied always, without a branch.

    A norm that is not finite is not caught, as in `torch.nn.utils.clip_grad_norm_` with its defaults: an infinite norm
    makes the factor 0, so finite gradients vanish and infinite ones become NaN; a NaN norm makes every gradient NaN.
    Squares are summed in the gradient's dtype, but those of float16 in float32: from about 1.8e19 on the norm is
    infinite, and elements below about 1e-23 do not count in it, which for any bound is the same.
    """

    max_norm: float

    def __post_init__(self) -> None:
        at_least("max_norm", self.max_norm, 0.0)

    def hyperparameters(self) -> dict[str, float]:
        """Return the bound."""
        return {"max_norm": float(self.max_norm)}

    def __call__(
        self,
        xp: Namespace,
        grads: Sequence[Array],
        params: Sequence[Array],
        hyper: Mapping[str, Array],
        step: Array,
    ) -> tuple[list[Array], dict[str, Array]]:
        """Return the scaled gradients and the metric `grad_norm`."""
        # The sums over single tensors are scalars: adding them in float64 costs nothing.
        total = xp.asarray(0.0, dtype=xp.float64)
        for grad in grads:
            wide = xp.astype(grad, xp.float32) if is_half(grad) else grad
            total = total + xp.astype(xp.sum(wide * wide), xp.float64)
        norm = xp.sqrt(total)
        factor = xp.minimum(hyper["max_norm"] / (norm + 1e-6), 1.0)
        return [g * cast_like(xp, factor, g) for g in grads], {"grad_norm": norm}
