"""Adam in the eigenbasis of Shampoo's preconditioner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least
from edgeopt.control import choose
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.matrices import along_axis, bounded, gram, identity, orthonormal, transposed
from edgeopt.optimizers.arithmetic.timing import is_multiple
from edgeopt.optimizers.base import Arrays, Updated, static, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent
from edgeopt.schedules import Schedule

__all__ = ["SOAP"]

# From the identity, at the first update.
_FIRST_ITERATIONS = 10


@dataclass(frozen=True)
class SOAP(Descent):
    """SOAP (Vyas et al., ICLR 2025, arXiv:2409.11321).

    For each dimension i of a tensor, with Gᵢ the matrix whose rows are the slices along it::

        m ← β₁·m + (1 - β₁)·g
        v ← β₂·v + (1 - β₂)·(g multiplied along each i by Qᵢᵀ)²
        u = (m multiplied along each i by Qᵢᵀ)/(√v + eps), multiplied along each i by Qᵢ
        θ ← (θ - lr·√(1 - β₂ᵗ⁻¹)/(1 - β₁ᵗ⁻¹)·u)·(1 - lr·weight_decay)
        Hᵢ ← β·Hᵢ + (1 - β)·Gᵢ·Gᵢᵀ

    and, after every `precondition_frequency` of these updates, Qᵢ ← QR(Hᵢ·Qᵢ) with the columns sorted by
    diag(QᵢᵀHᵢQᵢ), largest first, and v with them. The first update only makes H and Q; θ stays. β is `shampoo_beta`,
    β₂ where that is None.

    A dimension longer than `max_precond_dim` is not rotated, and a vector neither unless `precondition_1d` says so:
    then this is Adam. Slots `exp_avg` (m), `exp_avg_sq` (v), and `statistic_0`, `statistic_1`, `statistic_2`,
    `statistic_3` (Hᵢ) with `basis_0`, `basis_1`, `basis_2`, `basis_3` (Qᵢ) of the dimensions that are rotated.
    Gradients beyond 2⁻²⁰ of the root of the largest finite number count as that.

    Semantics and defaults of pytorch_optimizer and of the authors, with these differences: their first Q are the
    eigenvectors of H, here ten rounds of the same power iteration from the identity lead towards them; H gets
    1e-6 of its mean diagonal added for the iteration, so that its products are independent where H is singular; the
    iteration computes in float64; and their limit on the size is 10000.
    """

    lr: Schedule | float = 3e-3
    beta1: float = 0.95
    beta2: float = 0.95
    shampoo_beta: float | None = None
    eps: float = 1e-8
    precondition_1d: bool = False
    precondition_frequency: int = static(10)
    max_precond_dim: int = static(256)
    weight_decay: float = 1e-2
    decay: Decay = "after"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("precondition_frequency", self.precondition_frequency, 1)
        at_least("max_precond_dim", self.max_precond_dim, 0)

    @property
    def elementwise(self) -> bool:
        """The rule is one of tensors."""
        return False

    def _rotated(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The dimensions that have a basis."""
        if len(shape) < 2 and not (shape and self.precondition_1d):
            return ()
        return tuple(axis for axis, size in enumerate(shape) if size <= self.max_precond_dim)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the moments and the statistics, and identities for the bases."""
        slots = zeros(param, "exp_avg", "exp_avg_sq")
        for axis in self._rotated(param.shape):
            slots[f"statistic_{axis}"] = np.zeros((param.shape[axis],) * 2, param.dtype)
            slots[f"basis_{axis}"] = np.eye(param.shape[axis], dtype=param.dtype)
        return slots

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step, except at the first update; see the class for the equations."""
        moved, slots = super().update(xp, param, grad, state, hyper, step)
        return xp.where(step == 1, param, moved), slots

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Update moments, statistics and bases, and return the step."""
        axes = self._rotated(tuple(int(size) for size in param.shape))
        first, grad = step == 1, bounded(xp, grad)
        bases = {axis: state[f"basis_{axis}"] for axis in axes}

        def into(x: Array) -> Array:
            for axis, basis in bases.items():
                x = along_axis(xp, transposed(xp, basis), x, axis)
            return x

        projected = into(grad)
        exp_avg = xp.where(first, state["exp_avg"], ema(xp, hyper["beta1"], state["exp_avg"], grad))
        measured = ema(xp, hyper["beta2"], state["exp_avg_sq"], projected * projected)
        exp_avg_sq = xp.where(first, state["exp_avg_sq"], measured)
        direction = into(exp_avg) / (xp.sqrt(exp_avg_sq) + cast_like(xp, hyper["eps"], param))
        for axis, basis in bases.items():
            direction = along_axis(xp, basis, direction, axis)
        # One at the first update, whose step is not taken.
        counted = xp.maximum(step - 1, xp.ones_like(step))
        root_bias2 = xp.sqrt(bias_correction(xp, hyper["beta2"], counted))
        rate = hyper["lr"] * root_bias2 / bias_correction(xp, hyper["beta1"], counted)

        slots: dict[str, Array] = {"exp_avg": exp_avg}
        beta = hyper["beta2" if self.shampoo_beta is None else "shampoo_beta"]
        due = xp.logical_and(is_multiple(xp, step - 1, self.precondition_frequency), xp.logical_not(first))
        for axis, basis in bases.items():
            statistic = ema(xp, beta, state[f"statistic_{axis}"], gram(xp, grad, axis))
            (started,) = choose(xp, first, _first_basis(xp), lambda _, kept: [kept], statistic, basis)
            turned, exp_avg_sq = choose(
                xp, due, _next_basis(xp, axis), lambda _, kept, square: [kept, square], statistic, started, exp_avg_sq
            )
            slots |= {f"statistic_{axis}": statistic, f"basis_{axis}": turned}
        return cast_like(xp, rate, param) * direction, {"exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, **slots}

    def hyperparameters(self) -> dict[str, float]:
        """Names and default values of the rule's own numbers."""
        own = super().hyperparameters()
        return own if self.shampoo_beta is None else {**own, "shampoo_beta": self.shampoo_beta}


def _regular(xp: Namespace, statistic: Array) -> Array:
    """The statistic in float64, with something added to the diagonal."""
    size = int(statistic.shape[0])
    one, exact = identity(xp, size), xp.astype(statistic, xp.float64)
    return exact + (1e-6 * xp.sum(exact * one) / size + 1e-30) * one


def _first_basis(xp: Namespace) -> Any:
    def found(statistic: Array, kept: Array) -> list[Array]:
        regular = _regular(xp, statistic)
        basis = xp.astype(kept, xp.float64)
        for _ in range(_FIRST_ITERATIONS):
            basis = orthonormal(xp, xp.matmul(regular, basis))
        return [cast_like(xp, basis, kept)]

    return found


def _next_basis(xp: Namespace, axis: int) -> Any:
    """One power iteration, with the columns of the basis and the slices of the second moment in a new order."""

    def found(statistic: Array, kept: Array, square: Array) -> list[Array]:
        size = int(statistic.shape[0])
        basis = xp.astype(kept, xp.float64)
        product = xp.matmul(_regular(xp, statistic), basis)
        values = xp.sum(basis * product, axis=0)
        mine, other = xp.reshape(values, (size, 1)), xp.reshape(values, (1, size))
        earlier = xp.asarray(np.tril(np.ones((size, size), bool), -1))
        before = xp.logical_or(other > mine, xp.logical_and(other == mine, earlier))
        place = xp.sum(xp.astype(before, xp.float64), axis=1, keepdims=True)
        # Row i has its 1 in the column where i goes.
        order = xp.astype(place == xp.asarray(np.arange(size, dtype=np.float64)), xp.float64)
        moved = along_axis(xp, cast_like(xp, transposed(xp, order), square), square, axis)
        return [cast_like(xp, orthonormal(xp, xp.matmul(product, order)), kept), moved]

    return found
