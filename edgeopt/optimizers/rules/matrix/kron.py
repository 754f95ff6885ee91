"""Preconditioned SGD with Kronecker products of triangular matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, fraction, positive
from edgeopt.control import choose
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.matrices import bounded, transposed
from edgeopt.optimizers.arithmetic.norms import norm, safe_norm
from edgeopt.optimizers.base import Arrays, Updated, static
from edgeopt.optimizers.ingredients import Ingredient, Normal
from edgeopt.optimizers.rules.descent import Decay, Descent
from edgeopt.schedules import Schedule

__all__ = ["Kron"]


def _as_matrix(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """Rows and columns of a tensor without its first or its last dimension; None for vectors and scalars."""
    if len(shape) < 2:
        return None
    ends = ((math.prod(shape[:-1]), shape[-1]), (shape[0], math.prod(shape[1:])))
    return min(ends, key=lambda matrix: matrix[1] - matrix[0])


def _inverse(xp: Namespace, upper: Array) -> Array:
    """The inverse of an upper triangular matrix.

    Diagonal blocks of size 1, 2, 4, … are inverted one after the other: [[A, B], [0, C]] has [[A⁻¹, -A⁻¹·B·C⁻¹],
    [0, C⁻¹]], as exact as substitution.
    """
    size, places = int(upper.shape[0]), _places(xp, upper)
    down, right = xp.expand_dims(places, axis=1), xp.expand_dims(places, axis=0)
    diagonal, zero = down == right, xp.zeros_like(upper)
    inverse = xp.where(diagonal, 1.0 / xp.where(diagonal, upper, xp.ones_like(upper)), zero)
    block = 1
    while block < size:
        above, left = (xp.floor(place / block) for place in (down, right))
        # Rows of the first of a pair of blocks, and columns of the second.
        pair = xp.floor(above / 2.0) == xp.floor(left / 2.0)
        corner = xp.where(xp.logical_and(pair, above < left), upper, zero)
        inverse = inverse - xp.matmul(inverse, xp.matmul(corner, inverse))
        block *= 2
    return inverse


def _places(xp: Namespace, matrix: Array) -> Array:
    """0, 1, 2, … for the rows of a square matrix.

    Computed from it, so that a graph computes what is made of them, too, and holds no matrix of constants.
    """
    return xp.asarray(np.arange(int(matrix.shape[0])), dtype=matrix.dtype) + xp.zeros_like(xp.sum(matrix))


def _spectral_bound(xp: Namespace, matrix: Array) -> Array:
    """A lower bound of the largest singular value, by a power step from the largest column; 1 for zeros."""
    peak = xp.max(xp.abs(matrix))
    peak = xp.where(peak > 0, peak, xp.ones_like(peak))
    scaled = matrix / peak
    largest = xp.argmax(xp.sum(scaled * scaled, axis=0), axis=0)
    column = xp.reshape(xp.take(scaled, xp.reshape(largest, (1,)), axis=1), (1, -1))
    row = xp.matmul(column, scaled)
    size = norm(xp, row)
    known = size > 0
    row = xp.matmul(row / xp.where(known, size, xp.ones_like(size)), transposed(xp, scaled))
    return xp.where(known, peak * norm(xp, row), xp.ones_like(size))


@dataclass(frozen=True)
class Kron(Descent):
    """PSGD Kron (Li 2015, arXiv:1512.04202; 2018, arXiv:1803.09383), which learns to whiten gradients.

    A matrix has an upper triangular factor for each side, L and R, which begin as √precond_init_scale times the
    identity. With normal numbers V::

        m ← β₁·m + (1 - β₁)·g,  M = m/(1 - β₁ᵗ)
        at some updates:
            N = M + √ε·mean|M|·V                                with the machine epsilon ε of float32
            A = L·N·Rᵀ,  B = L⁻ᵀ·V·R⁻¹
            L ← L - precond_lr·triu(A·Aᵀ - B·Bᵀ)·L/‖A·Aᵀ + B·Bᵀ‖
            R ← R - precond_lr·triu(Aᵀ·A - Bᵀ·B)·R/‖Aᵀ·A + Bᵀ·B‖
        u = Lᵀ·L·M·Rᵀ·R
        θ ← θ·(1 - lr·weight_decay) - lr·u·min(1, 1.1/(RMS(u) + 1e-12))

    with ‖·‖ a lower bound of the spectral norm by one step of the power method. A side of one element, or of more than
    `max_size_triangular`, has a vector for its factor, of which triu takes the diagonal and ‖·‖ is the largest element;
    so has a vector or scalar. A tensor of more dimensions is a matrix whose columns are its last dimension, or all but
    its first, whichever are fewer beside the rows that are left. L and R are made equally large when they change.

    They change where the updates since the last change are as many as 1/p, with the falling share p::

        p = min(max(max_share·exp(-decay_rate·(t - 1 - flat_start)), min_share), max_share)

    Slots `exp_avg` (m), `factor_0` (L) and `factor_1` (R), and `since_change`, the number of updates since the change.

    Semantics and defaults of the package kron-torch with its schedule, in which N also takes the place of M in u, the
    factors are made equally large at one change in a hundred, and vectors have no weight decay.
    """

    lr: Schedule | float = 3e-4
    beta1: float = 0.9
    precond_lr: float = 0.1
    precond_init_scale: float = static(1.0)
    max_size_triangular: int = static(8192)
    max_share: float = static(1.0)
    min_share: float = static(0.03)
    decay_rate: float = static(0.001)
    flat_start: int = static(500)
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("precond_init_scale", self.precond_init_scale)
        at_least("max_size_triangular", self.max_size_triangular, 1)
        fraction("max_share", self.max_share, closed=True)
        positive("min_share", self.min_share)
        at_least("max_share", self.max_share, self.min_share)
        at_least("decay_rate", self.decay_rate, 0.0)
        at_least("flat_start", self.flat_start, 0)

    @property
    def elementwise(self) -> bool:
        """The rule is one of matrices."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum, and the first factors."""
        matrix = _as_matrix(param.shape)
        sides = (max(param.size, 1),) if matrix is None else matrix
        first = self.precond_init_scale ** (1.0 / len(sides))
        slots = {"exp_avg": np.zeros_like(param)}
        for place, side in enumerate(sides):
            vector = matrix is None or side == 1 or side > self.max_size_triangular
            factor = np.ones(side) if vector else np.eye(side)
            slots[f"factor_{place}"] = (first * factor).astype(param.dtype)
        return {**slots, "since_change": np.zeros(())}

    def ingredients(self, param: np.ndarray[Any, Any]) -> dict[str, Ingredient]:
        """The probe V."""
        return {"probe": Normal()}

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        shape = tuple(int(size) for size in param.shape)
        matrix = _as_matrix(shape) or (1, math.prod(shape))
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        corrected = exp_avg / cast_like(xp, bias_correction(xp, hyper["beta1"], step), param)
        flat, probe = (bounded(xp, xp.reshape(array, matrix)) for array in (corrected, state["probe"]))
        names = [slot for slot in ("factor_0", "factor_1") if slot in state]
        since = state["since_change"] + 1.0
        due = since * self._share(xp, step) >= 1.0
        rate = cast_like(xp, hyper["precond_lr"], param)
        factors = choose(
            xp, due, self._changed(xp), lambda _flat, _probe, _rate, *kept: kept, flat, probe, rate,
            *(state[name] for name in names),
        )  # fmt: skip
        direction = flat
        for axis, factor in _sides(factors):
            direction = _along(xp, factor, _along(xp, factor, direction, axis), axis, turned=True)
        size = safe_norm(xp, direction, (0, 1)) / math.sqrt(math.prod(shape))
        direction = direction * xp.minimum(xp.ones_like(size), 1.1 / (size + 1e-12))
        slots = {"exp_avg": exp_avg, **dict(zip(names, factors, strict=True))}
        slots["since_change"] = xp.where(due, xp.zeros_like(since), since)
        return cast_like(xp, hyper["lr"], param) * xp.reshape(direction, shape), slots

    def _share(self, xp: Namespace, step: Array) -> Array:
        """The share p of updates that change the factors."""
        late = xp.astype(step, xp.float64) - (1.0 + self.flat_start)
        share = self.max_share * xp.exp(-self.decay_rate * late)
        least, most = xp.full_like(share, self.min_share), xp.full_like(share, self.max_share)
        return xp.minimum(xp.maximum(share, least), most)

    def _changed(self, xp: Namespace) -> Any:
        def changed(flat: Array, probe: Array, rate: Array, *factors: Array) -> list[Array]:
            # The square root of the machine epsilon of float32.
            white = flat + 2.0**-11.5 * xp.mean(xp.abs(flat)) * probe
            inner = probe
            for axis, factor in _sides(factors):
                white = _along(xp, factor, white, axis)
                vector = len(factor.shape) == 1
                inverse = 1.0 / factor if vector else transposed(xp, _inverse(xp, factor))
                inner = _along(xp, inverse, inner, axis)
            white, inner = bounded(xp, white), bounded(xp, inner)
            moved = [_moved(xp, factor, white, inner, axis, rate) for axis, factor in _sides(factors)]
            return _balanced(xp, moved)

        return changed


def _sides(factors: Any) -> list[tuple[int, Array]]:
    """The factors with the axes that they act along; a single one is that of a row."""
    return list(enumerate(factors)) if len(factors) > 1 else [(1, factors[0])]


def _along(xp: Namespace, factor: Array, matrix: Array, axis: int, *, turned: bool = False) -> Array:
    """The product of a factor, or of its transpose, with a matrix along an axis."""
    if len(factor.shape) == 1:
        return matrix * xp.expand_dims(factor, axis=1 - axis)
    if axis == 0:
        return xp.matmul(transposed(xp, factor) if turned else factor, matrix)
    return xp.matmul(matrix, factor if turned else transposed(xp, factor))


def _moved(xp: Namespace, factor: Array, white: Array, inner: Array, axis: int, rate: Array) -> Array:
    """A factor after a step that makes what is whitened as large as the probe."""
    if len(factor.shape) == 1:
        large, small = (xp.sum(array * array, axis=1 - axis) for array in (white, inner))
        most = xp.max(large + small)
        return factor - rate * ((large - small) / xp.where(most > 0, most, xp.ones_like(most))) * factor
    if axis == 1:
        white, inner = transposed(xp, white), transposed(xp, inner)
    large, small = (xp.matmul(array, transposed(xp, array)) for array in (white, inner))
    rows, columns = (xp.expand_dims(_places(xp, large), axis=axis) for axis in (1, 0))
    upper = xp.where(rows <= columns, large - small, xp.zeros_like(large))
    return factor - xp.matmul(rate * (upper / _spectral_bound(xp, large + small)), factor)


def _balanced(xp: Namespace, factors: list[Array]) -> list[Array]:
    """The factors of a matrix with equal largest elements, and the same product."""
    if len(factors) == 1:
        return factors
    first, second = (xp.max(xp.abs(factor)) for factor in factors)
    ratio = xp.sqrt(second) / xp.sqrt(first)
    return [factors[0] * ratio, factors[1] / ratio]
