"""Muon whose orthogonalised momentum is normalised by second moments: of rows, or of each element."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.optimizers.arithmetic.averages import bias_correction, ema
from edgeopt.optimizers.arithmetic.norms import norm
from edgeopt.optimizers.base import Arrays
from edgeopt.optimizers.rules.matrix.muon import Muon, Scale, as_matrix
from edgeopt.schedules import Schedule

__all__ = ["AdaMuon", "NorMuon"]


def _second(xp: Namespace, matrix: Array, hyper: Arrays) -> Array:
    return cast_like(xp, hyper["eps2"], matrix)


@dataclass(frozen=True)
class NorMuon(Muon):
    """NorMuon (Li et al. 2025, arXiv:2510.05491), Muon whose neurons all move equally far.

    With the orthogonalised momentum X of `Muon`, and its factor s::

        v ← β₂·v + (1 - β₂)·mean(X², each row)
        Y = X/(√v + eps2)
        θ ← θ - lr·s·‖X‖/(‖Y‖ + eps2)·Y
        θ ← θ - lr·0.2·√(rows·columns)/(‖Y‖ + eps2)·Y      instead, without `preserve_norm`: algorithm 1 of the paper

    Slots `momentum_buffer` of Muon, and `second_momentum_buffer` (v) with one number for each row.

    Semantics and defaults of pytorch_optimizer, which follows the authors' code; it computes X in bfloat16, here X has
    the parameter's dtype. A vector or scalar is one row here as in `Muon`, and not one column.
    """

    lr: Schedule | float = 2e-2
    weight_decay: float = 0.0
    beta2: float = 0.95
    eps2: float = 1e-10
    preserve_norm: bool = True

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum buffer, and for the second moment of each row."""
        rows = as_matrix(param.shape)[0]
        return {**super().init(param), "second_momentum_buffer": np.zeros((rows, 1), param.dtype)}

    def _ratio(self, rows: int, columns: int) -> float:
        return super()._ratio(rows, columns) if self.preserve_norm else 0.2 * math.sqrt(rows * columns)

    def _normalized(
        self, xp: Namespace, matrix: Array, state: Arrays, hyper: Arrays, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        square = xp.mean(matrix * matrix, axis=1, keepdims=True)
        moment = ema(xp, hyper["beta2"], state["second_momentum_buffer"], square)
        even = matrix / (xp.sqrt(moment) + _second(xp, matrix, hyper))
        even = even / (norm(xp, even) + _second(xp, matrix, hyper))
        return norm(xp, matrix) * even if self.preserve_norm else even, {"second_momentum_buffer": moment}


@dataclass(frozen=True)
class AdaMuon(Muon):
    """AdaMuon (Si et al. 2025, arXiv:2507.11005), Muon with a second moment of each element, as in Adam.

    With the orthogonalised momentum X of `Muon`, which is that of the sign of the momentum with `signed`, and its
    factor s::

        v ← β₂·v + (1 - β₂)·X²
        Y = X/(√(v/(1 - β₂ᵗ)) + eps2)
        θ ← θ - lr·s·√min(rows, columns)/(‖Y‖ + eps2)·Y

    so that the root mean square of a step is 0.2·lr with the default `adjust_lr_fn`. Slots `momentum_buffer` of Muon,
    and `exp_avg_sq` (v).

    Semantics and defaults of pytorch_optimizer, which computes X in bfloat16; here it has the parameter's dtype. It
    takes the momentum itself, as the first version of the paper does; later ones take its sign.
    """

    lr: Schedule | float = 2e-2
    momentum: float = 0.9
    nesterov: bool = False
    adjust_lr_fn: Scale = "match_rms_adamw"
    weight_decay: float = 0.0
    beta2: float = 0.95
    eps2: float = 1e-10
    signed: bool = False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros for the momentum buffer, and for the second moment."""
        return {**super().init(param), "exp_avg_sq": np.zeros_like(param)}

    def _ratio(self, rows: int, columns: int) -> float:
        return super()._ratio(rows, columns) * math.sqrt(min(rows, columns))

    def _orthogonalized(self, xp: Namespace, matrix: Array, hyper: Arrays, *, transposed: bool) -> Array:
        return super()._orthogonalized(xp, xp.sign(matrix) if self.signed else matrix, hyper, transposed=transposed)

    def _normalized(
        self, xp: Namespace, matrix: Array, state: Arrays, hyper: Arrays, step: Array
    ) -> tuple[Array, dict[str, Array]]:
        kept = state["exp_avg_sq"]
        shape = tuple(int(size) for size in kept.shape)
        moment = ema(xp, hyper["beta2"], xp.reshape(kept, tuple(matrix.shape)), matrix * matrix)
        corrected = moment / cast_like(xp, bias_correction(xp, hyper["beta2"], step), matrix)
        even = matrix / (xp.sqrt(corrected) + _second(xp, matrix, hyper))
        even = even / (norm(xp, even) + _second(xp, matrix, hyper))
        return even, {"exp_avg_sq": xp.reshape(moment, shape)}
