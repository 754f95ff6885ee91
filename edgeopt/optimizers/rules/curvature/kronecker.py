"""Rules that precondition with what enters and leaves a layer: Eva and AdaFisher."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, fraction, positive
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.matrices import bounded
from edgeopt.optimizers.arithmetic.norms import safe_norm
from edgeopt.optimizers.arithmetic.timing import kept_unless, starts_period
from edgeopt.optimizers.base import Arrays, Collective, GroupArrays, Rule, Updated, UpdatedAll, static, zeros
from edgeopt.optimizers.ingredients import Ingredient, KroneckerFactor
from edgeopt.optimizers.rules.descent import Decay, Descent
from edgeopt.schedules import Schedule

__all__ = ["AdaFisher", "Eva"]

NumpyArray = np.ndarray[Any, Any]


def _sizes(shape: tuple[Any, ...]) -> tuple[int, int]:
    """Rows and columns of a weight as a matrix: its first axis, and all others."""
    rows, *others = (int(size) for size in shape)
    return rows, math.prod(others)


def _factors(param: NumpyArray, *, squared: bool, every: int = 1) -> dict[str, Ingredient]:
    """What a layer says of both sides of its weight; biases and scales have none."""
    if param.ndim < 2:
        return {}
    rows, columns = _sizes(param.shape)
    return {
        "rows": KroneckerFactor(every, rows, "rows", squared),
        "columns": KroneckerFactor(every, columns, "columns", squared),
    }


def _ranged(xp: Namespace, x: Array) -> Array:
    """Squares moved and scaled to [0, 1]; 0 where all elements are equal. Infinite ones count as the largest number."""
    x = xp.minimum(x, xp.asarray(float(xp.finfo(x.dtype).max), dtype=x.dtype))
    low = xp.min(x)
    spread = xp.max(x) - low
    return (x - low) / xp.where(spread > 0, spread, xp.ones_like(spread))


def _solved(xp: Namespace, grad: Array, rows: Array, columns: Array, damping: Array) -> Array:
    """The u with (c·cᵀ + damping)·u = grad, where c is the outer product of both vectors, in the place of a tensor."""
    unit, length = zip(*(_direction(xp, vector) for vector in (rows, columns)), strict=True)
    outer = xp.expand_dims(unit[0], axis=1) * xp.expand_dims(unit[1], axis=0)
    matrix = xp.reshape(grad, _sizes(grad.shape))
    square = (length[0] * length[1]) ** 2
    share = cast_like(xp, square / (square + damping), grad) * xp.sum(outer * matrix)
    return xp.reshape((matrix - share * outer) / cast_like(xp, damping, grad), tuple(grad.shape))


def _direction(xp: Namespace, vector: Array) -> tuple[Array, Array]:
    """The vector with length 1, or zero; and its length in float64."""
    length = xp.sum(safe_norm(xp, vector, (0,)))
    return vector / xp.where(length > 0, length, xp.ones_like(length)), xp.astype(length, xp.float64)


@dataclass(frozen=True)
class Eva(Collective, Rule):
    """Eva (Zhang, Shi and Li, ICLR 2023; arXiv:2308.02123): Kronecker-factored curvature as two vectors.

    For the gradient G of a weight, as a matrix, with the means b̄ and ā of `KroneckerFactor` along its rows and columns
    (in a linear layer of PyTorch and in a convolution the mean gradient of the output and the mean input)::

        b ← xi·b + (1 - xi)·b̄,  a ← xi·a + (1 - xi)·ā
        U = (G - (bᵀ·G·a)/(‖a‖²·‖b‖² + damping)·b·aᵀ)/damping
        n = min(1, √(kl_clip/Σ lr²·⟨U, G⟩)), over all weights of the group
        c ← momentum·c + n·U
        θ ← θ - lr·c

    Biases, scales and scalars take U = G and n = 1. Slots `row_mean` (b), `column_mean` (a) and `momentum_buffer` (c).
    Weight decay is added to the gradient, but not to the G above; one of exactly 0.0 is left out. `maximize` climbs.
    Weights that belong to no linear layer or convolution, embeddings for example, need another rule: give them a group.

    Semantics of the paper, with the defaults of the authors' code, except that a bias is a vector of its own and not a
    column of G.
    """

    optional = frozenset({"weight_decay"})

    lr: Schedule | float = 0.1
    momentum: float = 0.9
    xi: float = 0.95
    damping: float = 0.03
    kl_clip: float = 1e-3
    weight_decay: float = 0.0
    maximize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("momentum", self.momentum)
        fraction("xi", self.xi)
        positive("damping", self.damping)

    @property
    def elementwise(self) -> bool:
        """The rule is one of matrices."""
        return False

    def init(self, param: NumpyArray) -> dict[str, NumpyArray]:
        """Return zeros."""
        slots = zeros(param, "momentum_buffer")
        if param.ndim >= 2:
            rows, columns = _sizes(param.shape)
            slots |= {"row_mean": np.zeros(rows, param.dtype), "column_mean": np.zeros(columns, param.dtype)}
        return slots

    def ingredients(self, param: NumpyArray) -> dict[str, Ingredient]:
        """The means of both sides."""
        return _factors(param, squared=False)

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take one step; see the class for the equations."""
        params, grads, states, _ = group
        sign = -1.0 if self.maximize else 1.0
        directions: dict[str, Array] = {}
        slots: dict[str, dict[str, Array]] = {name: {} for name in params}
        total = 0.0 * hyper["lr"]
        for name, param in params.items():
            grad, state = sign * grads[name], states[name]
            directions[name] = grad
            if param.ndim < 2:
                continue
            b = ema(xp, hyper["xi"], state["row_mean"], state["rows"])
            a = ema(xp, hyper["xi"], state["column_mean"], state["columns"])
            slots[name] = {"row_mean": b, "column_mean": a}
            directions[name] = _solved(xp, bounded(xp, grad), b, a, hyper["damping"])
            total = total + hyper["lr"] * hyper["lr"] * xp.astype(
                xp.sum(directions[name] * bounded(xp, grad)), xp.float64
            )
        some = total > 0
        ratio = xp.sqrt(hyper["kl_clip"] / xp.where(some, total, xp.ones_like(total)))
        clip = xp.where(some, xp.minimum(ratio, xp.ones_like(ratio)), xp.ones_like(ratio))

        moved: dict[str, Array] = {}
        for name, param in params.items():
            direction = directions[name]
            if param.ndim >= 2:
                direction = cast_like(xp, clip, param) * direction
            if self.weight_decay:
                direction = direction + cast_like(xp, hyper["weight_decay"], param) * param
            buffer = cast_like(xp, hyper["momentum"], param) * states[name]["momentum_buffer"] + direction
            moved[name] = param - cast_like(xp, hyper["lr"], param) * buffer
            slots[name]["momentum_buffer"] = buffer
        return moved, slots, {}


@dataclass(frozen=True)
class AdaFisher(Descent):
    """AdaFisher (Gomes et al., ICLR 2025, arXiv:2405.16397): the Fisher matrix as diagonals of Kronecker factors.

    With the means s̄ and h̄ of squares that `KroneckerFactor` gives along the rows and columns of a weight (in a linear
    layer of PyTorch and in a convolution those of the gradient of the output and of the input)::

        s ← keep·s + add·range(s̄),  h ← keep·h + add·range(h̄)   at the updates 1, 1 + every, 1 + 2·every, …
        m ← β₁·m + (1 - β₁)·g
        θ ← θ·(1 - lr·weight_decay) - lr/(1 - β₁ᵗ)·m/(s·hᵀ + damping)

    range moves and scales a vector to [0, 1]; s and h begin as ones. There is no root. Biases, scales and scalars have
    1 in the place of s·hᵀ. Slots `exp_avg` (m), `row_factor` (s) and `column_factor` (h). With weight decay, none by
    default, this is AdaFisherW. Weights that belong to no linear layer or convolution, embeddings for example, need
    another rule: give them a group.

    Semantics of the authors' code, whose keep and add are gamma·0.1 and gamma·0.01 with gamma = 0.8 (an older release
    has 0.92 and 0.008), except that a bias is a vector of its own, and that scales of normalisation have no factors.
    """

    beta1: float = 0.9
    keep: float = 0.08
    add: float = 0.008
    damping: float = 1e-3
    every: int = static(100)
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("damping", self.damping)
        at_least("every", self.every, 1)

    @property
    def elementwise(self) -> bool:
        """The rule is one of matrices."""
        return False

    def init(self, param: NumpyArray) -> dict[str, NumpyArray]:
        """Return zeros for the momentum, and ones for the factors."""
        slots = zeros(param, "exp_avg")
        if param.ndim >= 2:
            rows, columns = _sizes(param.shape)
            slots |= {"row_factor": np.ones(rows, param.dtype), "column_factor": np.ones(columns, param.dtype)}
        return slots

    def ingredients(self, param: NumpyArray) -> dict[str, Ingredient]:
        """The means of squares of both sides."""
        return _factors(param, squared=True, every=self.every)

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        slots, fisher = {"exp_avg": exp_avg}, xp.ones_like(param)
        if param.ndim >= 2:
            due = starts_period(xp, step, self.every)
            keep, add = cast_like(xp, hyper["keep"], param), cast_like(xp, hyper["add"], param)
            for slot, given in (("row_factor", "rows"), ("column_factor", "columns")):
                new = keep * state[slot] + add * _ranged(xp, state[given])
                slots[slot] = kept_unless(xp, due, new, state[slot])
            outer = xp.expand_dims(slots["row_factor"], axis=1) * xp.expand_dims(slots["column_factor"], axis=0)
            fisher = xp.reshape(outer, tuple(param.shape))
        rate = cast_like(xp, hyper["lr"] / bias_correction(xp, hyper["beta1"], step), param)
        return rate * exp_avg / (fisher + cast_like(xp, hyper["damping"], param)), slots
