"""Momentum made orthogonal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, require
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.arithmetic.norms import norm
from edgeopt.optimizers.base import Arrays, Updated, static, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent

__all__ = ["Muon", "as_matrix"]

Scale: TypeAlias = Literal["original", "match_rms_adamw"]


def as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of the matrix that a tensor of this shape is: its first dimension, or one row for a vector."""
    return (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, math.prod(shape))


@dataclass(frozen=True)
class Muon(Descent):
    """Muon (Jordan et al. 2024), momentum whose singular values are all moved towards 1.

    A tensor of more than two dimensions is a matrix whose rows are its first dimension; a vector or scalar is one row,
    for which the rule normalises the momentum. Layers other than hidden matrices are better left to another optimizer.

    ::

        b ← momentum·b + (1 - momentum)·g
        X = (1 - momentum)·g + momentum·b  with `nesterov`, else b
        X ← X/max(‖X‖, eps)
        X ← a·X + (b·A + c·A²)·X  with A = X·Xᵀ and (a, b, c) = `ns_coefficients`, `ns_steps` times (Newton-Schulz)
        θ ← θ - lr·s·X

    `adjust_lr_fn` chooses s: "original" is √max(1, rows/columns), "match_rms_adamw" is 0.2·√max(rows, columns) (Liu et
    al. 2025, arXiv:2502.16982). Slot `momentum_buffer` is b.

    Semantics and defaults of `torch.optim.Muon`, which computes X in bfloat16; here it has the parameter's dtype.

    Raises:
        ConfigurationError: A number out of its range, or an unknown `adjust_lr_fn`.
    """

    momentum: float = 0.95
    eps: float = 1e-7
    nesterov: bool = True
    ns_coefficients: Sequence[float] = (3.4445, -4.775, 2.0315)
    ns_steps: int = static(5)
    adjust_lr_fn: Scale = "original"
    weight_decay: float = 0.1
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        scales = get_args(Scale)
        require(
            self.adjust_lr_fn in scales, f"adjust_lr_fn must be one of {', '.join(scales)}, got {self.adjust_lr_fn!r}"
        )
        require(len(self.ns_coefficients) == 3, f"ns_coefficients must be three, got {self.ns_coefficients!r}")
        at_least("ns_steps", self.ns_steps, 0)

    @property
    def elementwise(self) -> bool:
        """The rule is one of matrices."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum buffer."""
        return zeros(param, "momentum_buffer")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        buffer = ema(xp, hyper["momentum"], state["momentum_buffer"], grad)
        direction = ema(xp, hyper["momentum"], buffer, grad) if self.nesterov else buffer
        # A parameter's shape is known when its graph is made.
        shape = tuple(int(size) for size in param.shape)
        rows, columns = as_matrix(shape)
        matrix = self._orthogonalized(xp, xp.reshape(direction, (rows, columns)), hyper, transposed=rows > columns)
        matrix, slots = self._normalized(xp, matrix, state, hyper, step)
        delta = cast_like(xp, self._ratio(rows, columns) * hyper["lr"], param) * xp.reshape(matrix, shape)
        return delta, {"momentum_buffer": buffer, **slots}

    def _ratio(self, rows: int, columns: int) -> float:
        """The factor s."""
        if self.adjust_lr_fn == "match_rms_adamw":
            return 0.2 * math.sqrt(max(rows, columns))
        return math.sqrt(max(1.0, rows / columns))

    def _normalized(
        self, xp: Namespace, matrix: Array, state: Arrays, hyper: Arrays, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        """What becomes of the orthogonalised matrix, and the slots that this takes: rules built on this one say."""
        return matrix, {}

    def _orthogonalized(self, xp: Namespace, matrix: Array, hyper: Arrays, *, transposed: bool) -> Array:
        """The Newton-Schulz iteration, on the side of the smaller products."""
        first, second, third = self.ns_coefficients
        if transposed:
            matrix = xp.permute_dims(matrix, (1, 0))
        matrix = matrix / xp.maximum(norm(xp, matrix), cast_like(xp, hyper["eps"], matrix))
        for _ in range(self.ns_steps):
            gram = xp.matmul(matrix, xp.permute_dims(matrix, (1, 0)))
            matrix = first * matrix + xp.matmul(second * gram + third * xp.matmul(gram, gram), matrix)
        return xp.permute_dims(matrix, (1, 0)) if transposed else matrix
