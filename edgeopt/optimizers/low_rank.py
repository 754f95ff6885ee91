"""Adam whose moments are those of a projected gradient: GaLore, Fira and APOLLO."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, require
from edgeopt.optimizers.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Updated, static, zeros
from edgeopt.optimizers.control import choose
from edgeopt.optimizers.descent import Decay, Descent
from edgeopt.optimizers.ingredients import Ingredient, Normal
from edgeopt.optimizers.matrices import orthonormal, transposed
from edgeopt.optimizers.norms import safe_norm
from edgeopt.optimizers.timing import starts_period

__all__ = ["APOLLO", "APOLLOMini", "Fira", "GaLore"]

Scaling: TypeAlias = Literal["channel", "tensor"]


@dataclass(frozen=True)
class _LowRank(Descent):
    """What both share: the projection onto the shorter side of a matrix, and the moments."""

    rank: int = static(128)
    every: int = static(200)
    scale: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    decay: Decay = "after"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("rank", self.rank, 1)
        at_least("every", self.every, 1)

    @property
    def elementwise(self) -> bool:
        """The projection is one of matrices."""
        return False

    def _matrix(self, shape: tuple[int, ...]) -> tuple[int, int, int] | None:
        """Rows, columns and rank of the matrix that a parameter is; None for vectors and scalars."""
        if len(shape) < 2:
            return None
        rows, columns = int(shape[0]), math.prod(int(size) for size in shape[1:])
        return rows, columns, min(self.rank, rows, columns)

    def _moments(self, xp: Namespace, grad: Array, state: Arrays, hyper: Arrays) -> tuple[Array, dict[str, Array]]:
        """The direction of Adam without a correction of its bias, and the moments."""
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        exp_avg_sq = ema(xp, hyper["beta2"], state["exp_avg_sq"], grad * grad)
        direction = exp_avg / (xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"], grad))
        return direction, {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}

    def _rate(self, xp: Namespace, param: Array, hyper: Arrays, step: Array) -> Array:
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], step))
        return cast_like(xp, hyper["lr"] * root_bias2 / bias_correction(xp, hyper["beta1"], step), param)


def _projected(xp: Namespace, matrix: Array, projector: Array) -> Array:
    """A tall matrix times the projector (columns x rank), or the projector's transpose times a wide one."""
    if matrix.shape[0] >= matrix.shape[1]:
        return xp.matmul(matrix, projector)
    return xp.matmul(transposed(xp, projector), matrix)


def _restored(xp: Namespace, low: Array, projector: Array, *, tall: bool) -> Array:
    return xp.matmul(low, transposed(xp, projector)) if tall else xp.matmul(projector, low)


@dataclass(frozen=True)
class GaLore(_LowRank):
    """GaLore (Zhao et al., ICML 2024, arXiv:2403.03507).

    For a matrix G with at least as many rows as columns::

        P ← the first `rank` right singular vectors of G     at the updates 1, 1 + every, 1 + 2·every, …
        R = G·P
        m ← β₁·m + (1 - β₁)·R
        v ← β₂·v + (1 - β₂)·R²
        θ ← θ - scale·lr·√(1 - β₂ᵗ)/(1 - β₁ᵗ)·(m/(√v + eps))·Pᵀ
        θ ← θ·(1 - lr·weight_decay)

    For others P are left singular vectors, and R = Pᵀ·G. The moments stay as they are when P changes. A tensor of more
    than two dimensions is a matrix whose rows are its first dimension; vectors and scalars have no P and no scale: this
    is Adam for them. Slots `exp_avg` (m) and `exp_avg_sq` (v) in the shape of R, and `projector` (P).

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
        matrix = self._matrix(param.shape)
        if matrix is None:
            return zeros(param, "exp_avg", "exp_avg_sq")
        rows, columns, rank = matrix
        drawn = np.random.default_rng(0).standard_normal((min(rows, columns), rank))
        moments = zeros(np.zeros((rows, rank) if rows >= columns else (rank, columns), param.dtype), *_MOMENTS)
        return {**moments, "projector": np.linalg.qr(drawn)[0].astype(param.dtype)}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        rate, matrix = self._rate(xp, param, hyper, step), self._matrix(param.shape)
        if matrix is None:
            direction, slots = self._moments(xp, grad, state, hyper)
            return rate * direction, slots
        rows, columns, _ = matrix
        flat = xp.reshape(grad, (rows, columns))
        due = starts_period(xp, step, self.every)
        (projector,) = choose(xp, due, self._refreshed(xp), lambda _, old: [old], flat, state["projector"])
        low = _projected(xp, flat, projector)
        direction, slots = self._moments(xp, low, state, hyper)
        full = _restored(xp, direction, projector, tall=rows >= columns)
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


_MOMENTS = ("exp_avg", "exp_avg_sq")


def _channel_ratio(xp: Namespace, direction: Array, low: Array, axes: tuple[int, ...]) -> Array:
    """By how much Adam scales what is projected, along some axes."""
    return safe_norm(xp, direction, axes) / (safe_norm(xp, low, axes) + 1e-8)


def _limited(xp: Namespace, scaled: Array, before: Array, step: Array) -> tuple[Array, Array]:
    """A matrix whose norm grows by a factor of 1.01 at most, from the second update on, and its norm."""
    size = xp.reshape(safe_norm(xp, scaled, (0, 1)), ())
    growth = xp.maximum(size / (before + 1e-8), xp.full_like(size, 1.01)) / 1.01
    growth = xp.where(step == 1, xp.ones_like(size), growth)
    return scaled / growth, size / growth


@dataclass(frozen=True)
class Fira(GaLore):
    """Fira (Chen et al. 2024, arXiv:2410.01673), GaLore with a step for what the projection loses of the gradient.

    With P, R, m and v of `GaLore`, for a matrix G with at least as many rows as columns::

        N = m/(√v + eps)
        S = ‖N‖/(‖R‖ + 1e-8)·(G - R·Pᵀ), with norms of each row
        S ← S/(max(‖S‖/(n + 1e-8), 1.01)/1.01), n ← ‖S‖       from the second update on; at the first n ← ‖S‖
        θ ← θ - scale·lr·√(1 - β₂ᵗ)/(1 - β₁ᵗ)·(N·Pᵀ + S)
        θ ← θ·(1 - lr·weight_decay)

    For others S has norms of columns. Slots are those of GaLore and `residual_norm` (n).

    Semantics and defaults of the authors' package, except for P, which comes about as in `GaLore`. Its scale, 1, acts
    on the whole step here, and there on N·Pᵀ and, in S, on R·Pᵀ.
    """

    scale: float = 1.0

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the slots of GaLore, and zero for the norm of what is added."""
        more = {} if self._matrix(param.shape) is None else {"residual_norm": np.zeros((), param.dtype)}
        return {**super().init(param), **more}

    def _rest(
        self, xp: Namespace, grad: Array, low: Array, direction: Array, projector: Array, state: Arrays, step: Array
    ) -> tuple[Array | None, dict[str, Array]]:
        tall = grad.shape[0] >= grad.shape[1]
        lost = grad - _restored(xp, low, projector, tall=tall)
        scaled = lost * _channel_ratio(xp, direction, low, (1,) if tall else (0,))
        rest, size = _limited(xp, scaled, state["residual_norm"], step)
        return rest, {"residual_norm": size}


@dataclass(frozen=True)
class APOLLO(_LowRank):
    """APOLLO (Zhu et al., MLSys 2025, arXiv:2412.05270).

    For a matrix G with at least as many rows as columns::

        P ← normal numbers/√rank                              at the updates 1, 1 + every, 1 + 2·every, …
        R = G·P
        m ← β₁·m + (1 - β₁)·R
        v ← β₂·v + (1 - β₂)·R²
        s = ‖m/(√v + eps)‖/(‖R‖ + 1e-8), of each row;  with `scaling="tensor"` of the whole
        S = s·G
        S ← S/(max(‖S‖/(n + 1e-8), 1.01)/1.01), n ← ‖S‖       from the second update on; at the first n ← ‖S‖
        θ ← θ - √scale·lr·√(1 - β₂ᵗ)/(1 - β₁ᵗ)·S
        θ ← θ·(1 - lr·weight_decay)

    For others R = Pᵀ·G, and s is one of columns. A tensor of more than two dimensions is a matrix whose rows are its
    first dimension; vectors and scalars have no P and no scale: this is Adam for them. Slots `exp_avg` (m) and
    `exp_avg_sq` (v) in the shape of R, `projector` (P), and `scaled_norm` (n).

    Semantics of the authors' package apollo-torch, with the rank and scale that they advise. There P is drawn from a
    seed of the parameter's, here by the bundle's generator; and a rank beyond the shorter side counts as that side.
    """

    rank: int = static(256)
    scaling: Scaling = "channel"

    def __post_init__(self) -> None:
        super().__post_init__()
        known = get_args(Scaling)
        require(self.scaling in known, f"scaling must be one of {', '.join(known)}, got {self.scaling!r}")

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros."""
        matrix = self._matrix(param.shape)
        if matrix is None:
            return zeros(param, *_MOMENTS)
        rows, columns, rank = matrix
        moments = zeros(np.zeros((rows, rank) if rows >= columns else (rank, columns), param.dtype), *_MOMENTS)
        projector = np.zeros((min(rows, columns), rank), param.dtype)
        return {**moments, "projector": projector, "scaled_norm": np.zeros((), param.dtype)}

    def ingredients(self, param: np.ndarray[Any, Any]) -> dict[str, Ingredient]:
        """The next projector."""
        matrix = self._matrix(param.shape)
        return {} if matrix is None else {"projection": Normal((min(matrix[:2]), matrix[2]))}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        rate, matrix = self._rate(xp, param, hyper, step), self._matrix(param.shape)
        if matrix is None:
            direction, slots = self._moments(xp, grad, state, hyper)
            return rate * direction, slots
        rows, columns, rank = matrix
        flat = xp.reshape(grad, (rows, columns))
        drawn = state["projection"] * (1.0 / math.sqrt(rank))
        projector = xp.where(starts_period(xp, step, self.every), drawn, state["projector"])
        low = _projected(xp, flat, projector)
        direction, slots = self._moments(xp, low, state, hyper)
        axes = ((1,) if rows >= columns else (0,)) if self.scaling == "channel" else (0, 1)
        scaled, size = _limited(xp, flat * _channel_ratio(xp, direction, low, axes), state["scaled_norm"], step)
        factor = cast_like(xp, xp.sqrt(hyper["scale"]), param) * rate
        delta = factor * xp.reshape(scaled, tuple(param.shape))
        return delta, {**slots, "projector": projector, "scaled_norm": size}


@dataclass(frozen=True)
class APOLLOMini(APOLLO):
    """APOLLO with a projection onto one dimension and one factor for a whole tensor (arXiv:2412.05270).

    The equations of `APOLLO` with these settings::

        rank = 1, scaling = "tensor", scale = 128

    Semantics of the authors' package apollo-torch, with the settings that they advise for APOLLO-Mini.
    """

    rank: int = static(1)
    scaling: Scaling = "tensor"
    scale: float = 128.0
