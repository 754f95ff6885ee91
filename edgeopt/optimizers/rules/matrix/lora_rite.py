"""Steps for low-rank adapters that do not depend on how the adapter is factored: LoRA-RITE."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, positive, require
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.arithmetic.matrices import bounded, eigen, transposed
from edgeopt.optimizers.base import Arrays, Collective, GroupArrays, Rule, UpdatedAll, static

__all__ = ["LoRARITE"]

NumpyArray = np.ndarray[Any, Any]


def _partner(name: str) -> str | None:
    """The name of the other factor of an adapter."""
    for mine, other in (("lora_A", "lora_B"), ("lora_B", "lora_A"), ("lora_a", "lora_b"), ("lora_b", "lora_a")):
        if mine in name:
            return name.replace(mine, other)
    return None


def _is_first(name: str) -> bool:
    return "lora_A" in name or "lora_a" in name


@dataclass(frozen=True)
class LoRARITE(Collective, Rule):
    """LoRA-RITE (Yen et al., ICLR 2025, arXiv:2410.20625), for the factors of ΔW = B·A.

    Names say which parameters belong together: they differ in `lora_A` and `lora_B` (or `lora_a` and `lora_b`). A has
    the rank as its first dimension, B as its last. Written for B (A is treated likewise, transposed), with A = R·Q and
    orthonormal rows of Q::

        ĝ = g·R⁻¹,  0 if its root mean square is above `skip_above`
        ĝ ← ĝ·min(1, max_norm/‖ĝ of all parameters of the group‖)
        P = Q·Q'ᵀ,  Q' that of the update before
        V ← w₂·P·V·Pᵀ + (1 - w₂)·ĝᵀ·ĝ/rows
        m ← w₁·m·Pᵀ + (1 - w₁)·ĝ·((V + eps²·1)^(1/2) + eps·1)⁻¹
        B ← B - lr·(m·R⁻ᵀ + weight_decay·B)

    wᵢ = βᵢ·(1 - βᵢᵗ⁻¹)/(1 - βᵢᵗ). R⁻¹ is 0 where A is 0. `skip_above` and `max_norm` of exactly 0.0 switch their term
    off. A parameter without a partner is treated as if Q and R were the identity: a matrix with its shorter side as the
    rank, a vector or scalar with rank 1. Of ranks above `max_rank` V keeps the diagonal only.

    Slots `exp_avg` (m), `second_moment` (V) and `basis` (the transpose of its own Q, for the partner). Gradients beyond
    2⁻²⁰ of the root of the largest finite number count as that; a weight decay of exactly 0.0 is left out of the graph;
    `maximize` climbs.

    Semantics and defaults of pytorch_optimizer, without its escape, capping and balancing, which it has switched off.
    It takes Q and R from a QR factorisation; here R is the symmetric (A·Aᵀ)^(1/2), which gives the same steps. The
    eigenvalues for both roots come from Jacobi's rotations, as matrix products in float64.

    Raises:
        ConfigurationError: A number out of its range, or factors whose ranks differ.
    """

    optional = frozenset({"weight_decay", "max_norm", "skip_above"})

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    max_norm: float = 1.0
    skip_above: float = 1.0
    weight_decay: float = 0.0
    max_rank: int = static(64)
    maximize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("eps", self.eps)
        at_least("max_rank", self.max_rank, 1)

    @property
    def elementwise(self) -> bool:
        """The rule is one of matrices."""
        return False

    def _sizes(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """The longer side and the rank."""
        size = math.prod(int(dim) for dim in shape)
        if len(shape) < 2:
            return size, 1
        rows = int(shape[0])
        return max(rows, size // rows), min(rows, size // rows)

    def init(self, param: NumpyArray) -> dict[str, NumpyArray]:
        """Return zeros for the moments and the basis."""
        long, rank = self._sizes(param.shape)
        full = (rank, rank) if rank <= self.max_rank else (rank,)
        return {
            "exp_avg": np.zeros((long, rank), param.dtype),
            "second_moment": np.zeros(full, param.dtype),
            "basis": np.zeros((long, rank), param.dtype),
        }

    def init_shared(self, params: Mapping[str, NumpyArray]) -> dict[str, NumpyArray]:
        """Return nothing; it checks that the ranks of factors agree."""
        for name, param in params.items():
            other = _partner(name)
            if other is not None and other in params and _is_first(name):
                fits = param.ndim == params[other].ndim == 2 and param.shape[0] == params[other].shape[1]
                small = fits and param.shape[0] <= min(param.shape[1], params[other].shape[0], self.max_rank)
                require(small, f"{name!r} and {other!r} are no factors of one rank, at most {self.max_rank}")
        return {}

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take one step; see the class for the equations."""
        params, grads, states, _ = group
        sign = -1.0 if self.maximize else 1.0
        columns = {name: self._columns(xp, name, params, param) for name, param in params.items()}
        paired = {name: other for name in params if (other := _partner(name)) is not None and other in params}
        inverse = {name: _inverse_scale(xp, columns[name]) for name in paired}
        basis = {name: xp.matmul(columns[name], inverse[name]) for name in paired}
        plain: dict[str, Array] = {}
        for name in params:
            grad = bounded(xp, sign * self._columns(xp, name, params, grads[name]))
            plain[name] = xp.matmul(grad, inverse[paired[name]]) if name in paired else grad
            if self.skip_above:
                size = xp.sqrt(xp.mean(plain[name] * plain[name]))
                over = size > cast_like(xp, hyper["skip_above"], size)
                plain[name] = xp.where(over, xp.zeros_like(plain[name]), plain[name])
        if self.max_norm:
            squares = [xp.astype(xp.sum(each * each), xp.float64) for each in plain.values()]
            total = xp.sqrt(sum(squares[1:], squares[0]))
            safe = xp.maximum(total, xp.full_like(total, 1e-300))
            scale = xp.minimum(hyper["max_norm"] / safe, xp.ones_like(total))
            plain = {name: cast_like(xp, scale, each) * each for name, each in plain.items()}

        moved: dict[str, Array] = {}
        slots: dict[str, dict[str, Array]] = {}
        for name, param in params.items():
            state, grad, other = states[name], plain[name], paired.get(name)
            mean, second = state["exp_avg"], state["second_moment"]
            if other is not None:
                turn = xp.matmul(transposed(xp, basis[other]), states[other]["basis"])
                mean = xp.matmul(mean, transposed(xp, turn))
                second = xp.matmul(turn, xp.matmul(second, transposed(xp, turn)))
            square = xp.matmul(transposed(xp, grad), grad) if second.ndim == 2 else xp.sum(grad * grad, axis=0)
            second = ema(xp, _weight(xp, hyper["beta2"], step), second, square / float(grad.shape[0]))
            mean = ema(xp, _weight(xp, hyper["beta1"], step), mean, _whitened(xp, grad, second, hyper["eps"]))
            delta = mean if other is None else xp.matmul(mean, transposed(xp, inverse[other]))
            if self.weight_decay:
                delta = delta + cast_like(xp, hyper["weight_decay"], param) * columns[name]
            new = columns[name] - cast_like(xp, hyper["lr"], param) * delta
            moved[name] = self._restored(xp, name, params, new)
            slots[name] = {"exp_avg": mean, "second_moment": second, "basis": basis.get(name, state["basis"])}
        return moved, slots, {}

    def _upright(self, name: str, params: Arrays) -> bool:
        """Whether the rank is the last dimension already."""
        shape = params[name].shape
        if _partner(name) in params:
            return not _is_first(name)
        return len(shape) < 2 or int(shape[0]) >= math.prod(int(dim) for dim in shape[1:])

    def _columns(self, xp: Namespace, name: str, params: Arrays, x: Array) -> Array:
        """The matrix with the rank as its columns."""
        sizes = self._sizes(tuple(params[name].shape))
        return xp.reshape(x, sizes) if self._upright(name, params) else transposed(xp, xp.reshape(x, sizes[::-1]))

    def _restored(self, xp: Namespace, name: str, params: Arrays, x: Array) -> Array:
        return xp.reshape(x if self._upright(name, params) else transposed(xp, x), tuple(params[name].shape))


def _weight(xp: Namespace, beta: Array, step: Array) -> Array:
    """The weight of what was, so that the average is one of all updates from the first on."""
    steps = xp.astype(step, xp.float64)
    return beta * (1.0 - beta ** (steps - 1.0)) / (1.0 - beta**steps)


def _inverse_scale(xp: Namespace, columns: Array) -> Array:
    """(CᵀC)^(-1/2), with 0 for the inverse of what cannot be told from 0."""
    exact = xp.astype(columns, xp.float64)
    values, vectors = eigen(xp, xp.matmul(transposed(xp, exact), exact))
    least = xp.max(values) * float(xp.finfo(columns.dtype).eps) * int(columns.shape[1])
    large = values > xp.maximum(least, xp.zeros_like(least))
    roots = xp.where(large, 1.0 / xp.sqrt(xp.where(large, values, xp.ones_like(values))), xp.zeros_like(values))
    return cast_like(xp, xp.matmul(vectors * roots, transposed(xp, vectors)), columns)


def _whitened(xp: Namespace, grad: Array, second: Array, eps: Array) -> Array:
    """The gradient times ((V + eps²)^(1/2) + eps)⁻¹."""
    if second.ndim == 1:
        small = cast_like(xp, eps, grad)
        return grad / (xp.sqrt(second + small * small) + small)
    values, vectors = eigen(xp, second)
    roots = 1.0 / (xp.sqrt(xp.maximum(values, xp.zeros_like(values)) + eps * eps) + eps)
    return xp.matmul(grad, cast_like(xp, xp.matmul(vectors * roots, transposed(xp, vectors)), grad))
