"""Adam in the space of the largest singular vectors: GaLore, and Fira, which adds the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least
from edgeopt.control import choose
from edgeopt.optimizers.arithmetic.matrices import orthonormal, transposed
from edgeopt.optimizers.arithmetic.timing import starts_period
from edgeopt.optimizers.base import Arrays, Updated, static
from edgeopt.optimizers.rules.lean.low_rank import LowRank, channel_ratio, limited, projected, restored

__all__ = ["Fira", "GaLore"]


@dataclass(frozen=True)
class GaLore(LowRank):
    """GaLore (Zhao et al., ICML 2024, arXiv:2403.03507).

    For a matrix G with at least as many rows as columns::

        P ← the first `rank` right singular vectors of G     at the updates 1, 1 + T, 1 + 2·T, …
        R = G·P
        m ← β₁·m + (1 - β₁)·R
        v ← β₂·v + (1 - β₂)·R²
        θ ← θ - scale·lr·√(1 - β₂ᵗ)/(1 - β₁ᵗ)·(m/(√v + eps))·Pᵀ
        θ ← θ·(1 - lr·weight_decay)

    T is `update_proj_gap`. For others P are left singular vectors, and R = Pᵀ·G. The moments stay as they are when P
    changes. A tensor of more than two dimensions is a matrix whose rows are its first dimension; vectors and scalars
    have no P and no scale: this is Adam for them. Slots `exp_avg` (m) and `exp_avg_sq` (v) in the shape of R, and
    `projector` (P).

    Semantics and defaults of the authors' package galore-torch, except that P comes from `iterations` rounds of
    orthogonal iteration in float64, which begin with the P before, and at first with a fixed one, instead of a singular
    value decomposition: it approximates the same subspace, the better the larger the gap between the singular values
    inside and outside. Signs of singular vectors are arbitrary in both.
    """

    scale: float = 0.25
    iterations: int = static(4)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("iterations", self.iterations, 1)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the moments, and an arbitrary projector, the same for each parameter of the shape."""
        moments, matrix = self._first_moments(param), self._matrix(param.shape)
        if matrix is None:
            return moments
        rows, columns, rank = matrix
        drawn = np.random.default_rng(0).standard_normal((min(rows, columns), rank))
        return {**moments, "projector": np.linalg.qr(drawn)[0].astype(param.dtype)}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        rate, matrix = self._rate(xp, param, hyper, step), self._matrix(param.shape)
        if matrix is None:
            direction, slots = self._moments(xp, grad, state, hyper)
            return rate * direction, slots
        rows, columns, _ = matrix
        flat = xp.reshape(grad, (rows, columns))
        due = starts_period(xp, step, self.update_proj_gap)
        (projector,) = choose(xp, due, self._refreshed(xp), lambda _, old: [old], flat, state["projector"])
        low = projected(xp, flat, projector)
        direction, slots = self._moments(xp, low, state, hyper)
        full = restored(xp, direction, projector, tall=rows >= columns)
        rest, more = self._rest(xp, flat, low, direction, projector, state, step)
        factor = cast_like(xp, hyper["scale"], param) * rate
        full = full if rest is None else full + rest
        return factor * xp.reshape(full, tuple(param.shape)), {**slots, "projector": projector, **more}

    def _rest(
        self, xp: Namespace, grad: Array, low: Array, direction: Array, projector: Array, state: Arrays, step: Array
    ) -> tuple[Array | None, dict[str, Array]]:
        """What is added to the step for the gradient that the projection loses, and the slots that this takes."""
        return None, {}

    def _refreshed(self, xp: Namespace) -> Any:
        def refreshed(grad: Array, kept: Array) -> list[Array]:
            exact = xp.astype(grad, xp.float64)
            exact = exact / xp.maximum(xp.max(xp.abs(exact)), xp.asarray(1e-300, dtype=xp.float64))
            tall = grad.shape[0] >= grad.shape[1]
            basis = xp.astype(kept, xp.float64)
            for _ in range(self.iterations):
                product = xp.matmul(exact, basis) if tall else xp.matmul(transposed(xp, exact), basis)
                back = xp.matmul(transposed(xp, exact), product) if tall else xp.matmul(exact, product)
                # Where the gradient has no such rank, the directions before stay.
                basis = orthonormal(xp, back + 1e-14 * basis)
            return [cast_like(xp, basis, kept)]

        return refreshed


@dataclass(frozen=True)
class Fira(GaLore):
    """Fira (Chen et al. 2024, arXiv:2410.01673), GaLore with a step for what the projection loses of the gradient.

    With P, R, m and v of `GaLore`, for a matrix G with at least as many rows as columns::

        N = m/(√v + eps)
        S = ‖N‖/(‖R‖ + 1e-8)·(G - R·Pᵀ), with norms of each row
        S ← S/(max(‖S‖/(n + 1e-8), 1.01)/1.01), n ← ‖S‖       from the second update on; at the first n ← ‖S‖
        θ ← θ - scale·lr·√(1 - β₂ᵗ)/(1 - β₁ᵗ)·(N·Pᵀ + S)
        θ ← θ·(1 - lr·weight_decay)

    For others S has norms of columns. Slots are those of GaLore and `residual_norm` (n). Where the rank is that of the
    matrix nothing is lost, and there is no S.

    Semantics and defaults of the authors' package, except for P, which comes about as in `GaLore`. Its scale, 1, acts
    on the whole step here, and there on N·Pᵀ and, in S, on R·Pᵀ.
    """

    scale: float = 1.0

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the slots of GaLore, and zero for the norm of what is added."""
        more = {"residual_norm": np.zeros((), param.dtype)} if self._loses(param.shape) else {}
        return {**super().init(param), **more}

    def _loses(self, shape: tuple[int, ...]) -> bool:
        """Whether the projection has fewer dimensions than the gradient; otherwise the rest would be rounding."""
        matrix = self._matrix(shape)
        return matrix is not None and matrix[2] < min(matrix[:2])

    def _rest(
        self, xp: Namespace, grad: Array, low: Array, direction: Array, projector: Array, state: Arrays, step: Array
    ) -> tuple[Array | None, dict[str, Array]]:
        if "residual_norm" not in state:
            return None, {}
        tall = grad.shape[0] >= grad.shape[1]
        lost = grad - restored(xp, low, projector, tall=tall)
        scaled = lost * channel_ratio(xp, direction, low, (1,) if tall else (0,))
        rest, size = limited(xp, scaled, state["residual_norm"], step)
        return rest, {"residual_norm": size}
