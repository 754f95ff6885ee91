"""Preconditioning by a matrix for each dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, fraction, positive
from edgeopt.control import choose
from edgeopt.optimizers.arithmetic.matrices import along_axis, bounded, gram, identity, inverse_root
from edgeopt.optimizers.arithmetic.timing import starts_period
from edgeopt.optimizers.base import Arrays, Updated, static, zeros
from edgeopt.optimizers.rules.descent import Descent

__all__ = ["Shampoo"]


@dataclass(frozen=True)
class Shampoo(Descent):
    """Shampoo (Gupta, Koren and Singer, ICML 2018, arXiv:1802.09568).

    For each dimension i of a tensor of k dimensions, with Gᵢ the matrix whose rows are the slices along it::

        g ← (1 - momentum)·g + momentum·b        from the second update on
        Hᵢ ← Hᵢ + Gᵢ·Gᵢᵀ
        b = g, multiplied along each dimension i by (Hᵢ + eps·1)^(-1/2k)
        θ ← θ - lr·b

    A dimension longer than `max_size` has a diagonal Hᵢ, the paper's variant for large tensors. The roots are taken at
    the updates 1, 1 + every, 1 + 2·every and so on.

    Slots `statistic_0`, `statistic_1`, `statistic_2`, `statistic_3` (Hᵢ), with `every` above 1 also `root_0` and so on
    (the roots), and with momentum `momentum_buffer` (b). Gradients beyond 2⁻²⁰ of the root of the largest finite number
    count as that.

    Semantics and defaults of pytorch_optimizer, except for these: it takes eigenvalues, here a Newton iteration of
    matrix products in float64 finds the roots; it has no limit on the size; with `every` above 1 it does not move
    before that update; and weight decay in the gradient enters there behind the momentum.
    """

    momentum: float = 0.0
    eps: float = 1e-6
    every: int = static(1)
    max_size: int = static(256)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("eps", self.eps)
        fraction("momentum", self.momentum)
        at_least("every", self.every, 1)
        at_least("max_size", self.max_size, 0)

    @property
    def elementwise(self) -> bool:
        """The rule is one of tensors."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the statistics and what is kept of roots and momentum."""
        slots: dict[str, np.ndarray[Any, Any]] = {}
        for axis, size in enumerate(param.shape or (1,)):
            shape = (size, size) if size <= self.max_size else (size,)
            slots[f"statistic_{axis}"] = np.zeros(shape, param.dtype)
            if self.every > 1:
                slots[f"root_{axis}"] = np.zeros(shape, param.dtype)
        return {**slots, **(zeros(param, "momentum_buffer") if self.momentum else {})}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Update the statistics and return the preconditioned gradient."""
        shape = tuple(int(size) for size in param.shape)
        slots: dict[str, Array] = {}
        if self.momentum:
            momentum = cast_like(xp, hyper["momentum"], param)
            mixed = (1.0 - momentum) * grad + momentum * state["momentum_buffer"]
            grad = xp.where(step == 1, grad, mixed)
        grad = xp.reshape(bounded(xp, grad), shape or (1,))
        direction = grad
        for axis, size in enumerate(shape or (1,)):
            key, order = f"statistic_{axis}", 2 * len(shape or (1,))
            full = size <= self.max_size
            others = tuple(other for other in range(len(shape)) if other != axis)
            outer = gram(xp, grad, axis) if full else xp.sum(grad * grad, axis=others)
            slots[key] = state[key] + outer
            root = self._root(xp, slots[key], state.get(f"root_{axis}"), order, hyper["eps"], step)
            if self.every > 1:
                slots[f"root_{axis}"] = root
            if full:
                direction = along_axis(xp, root, direction, axis)
            else:
                direction = direction * xp.reshape(root, tuple(size if at == axis else 1 for at in range(len(shape))))
        direction = xp.reshape(direction, shape)
        if self.momentum:
            slots["momentum_buffer"] = direction
        return cast_like(xp, hyper["lr"], param) * direction, slots

    def _root(self, xp: Namespace, statistic: Array, kept: Array | None, order: int, eps: Array, step: Array) -> Array:
        """The inverse root of order `order`, the kept one where it is not due."""

        def taken(matrix: Array, ridge: Array, *_: Array) -> list[Array]:
            ridge = cast_like(xp, ridge, matrix)
            if matrix.ndim == 1:
                return [(matrix + ridge) ** (-1.0 / order)]
            return [
                inverse_root(xp, matrix + ridge * xp.astype(identity(xp, int(matrix.shape[0])), matrix.dtype), order)
            ]

        if kept is None:
            return taken(statistic, eps)[0]
        due = starts_period(xp, step, self.every)
        return choose(xp, due, taken, lambda _matrix, _ridge, old: [old], statistic, eps, kept)[0]
