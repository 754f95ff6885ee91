"""Second moments kept as one row and one column: Adafactor and CAME."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import positive, within
from edgeopt.optimizers.arithmetic.averages import ema
from edgeopt.optimizers.arithmetic.norms import count, finite_square, norm
from edgeopt.optimizers.base import Arrays, Rule, Updated, zeros
from edgeopt.optimizers.rules.descent import Decay, Descent
from edgeopt.schedules import Schedule
from edgeopt_runtime.ranges import Range

__all__ = ["CAME", "Adafactor"]


def _init_factor(slot: str, param: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Zeros for a row (one number for each row) or a column factor.

    What has no rows and columns keeps its full moment in the place of the row factor, and an unused scalar beside it.
    """
    if param.ndim < 2:
        return np.zeros_like(param) if "row" in slot else np.zeros((), param.dtype)
    return np.zeros_like(param[..., :1] if "row" in slot else param[..., :1, :])


def _means(xp: Namespace, square: Array) -> tuple[Array, Array]:
    """The mean of each row and of each column of the last two dimensions."""
    return xp.mean(square, axis=-1, keepdims=True), xp.mean(square, axis=-2, keepdims=True)


def _clipped(xp: Namespace, update: Array, threshold: Array) -> Array:
    """The update, scaled down where its root mean square is above the threshold."""
    size = norm(xp, update) / xp.sqrt(count(xp, update))
    return update / xp.maximum(size / cast_like(xp, threshold, update), xp.ones_like(size))


@dataclass(frozen=True)
class Adafactor(Rule):
    """Adafactor (Shazeer and Stern, ICML 2018, arXiv:1804.04235).

    With w = t^beta2_decay, and R and C the running means of g² over rows and columns of the last two dimensions::

        R ← (1 - w)·R + w·mean(g², columns)      C ← (1 - w)·C + w·mean(g², rows)
        V = R·C / max(mean(R), eps1)             for vectors and scalars V ← (1 - w)·V + w·g²
        u = g/√max(V, eps1²)
        u ← u/max(1, RMS(u)/d)
        θ ← θ·(1 - lr·weight_decay) - max(eps2, RMS(θ))·min(lr, 1/√t)·u

    RMS(θ) is taken before the decay. `eps` stands for both. `eps1=None` is the machine epsilon of the parameter's
    dtype. Slots `row_var` (R; V itself for vectors and scalars) and `col_var` (C; an unused scalar for them). A weight
    decay of exactly 0.0 is left out of the graph; `maximize` climbs. Squares beyond 2⁻³² of the largest finite number
    count as that number.

    Semantics and defaults of `torch.optim.Adafactor`.

    Raises:
        ConfigurationError: A number out of its range.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"weight_decay"})
    any_sign: ClassVar[frozenset[str]] = frozenset({"beta2_decay"})
    combined: ClassVar[Mapping[str, tuple[str, ...]]] = {"eps": ("eps1", "eps2")}

    lr: Schedule | float = 1e-2
    beta2_decay: float = -0.8
    eps1: float | None = None
    eps2: float = 1e-3
    d: float = 1.0
    weight_decay: float = 0.0
    maximize: bool = False

    if TYPE_CHECKING:
        eps: Sequence[float | None] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("d", self.d)
        within("beta2_decay", self.beta2_decay, Range(at_most=0.0))
        if self.eps1 is not None:
            positive("eps1", self.eps1)

    @property
    def elementwise(self) -> bool:
        """The moments, the clipping and the relative step are those of the tensor."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros, one for each row and column."""
        return {slot: _init_factor(slot, param) for slot in ("row_var", "col_var")}

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step; see the class for the equations."""
        if self.maximize:
            grad = -grad
        steps = xp.astype(step, xp.float64)
        keep = 1.0 - steps ** hyper["beta2_decay"]
        eps1 = xp.asarray(float(xp.finfo(param.dtype).eps) if self.eps1 is None else self.eps1, dtype=param.dtype)

        square, slots = finite_square(xp, grad), {"col_var": state["col_var"]}
        if param.ndim < 2:
            variance = slots["row_var"] = ema(xp, keep, state["row_var"], square)
        else:
            rows, columns = _means(xp, square)
            rows = slots["row_var"] = ema(xp, keep, state["row_var"], rows)
            columns = slots["col_var"] = ema(xp, keep, state["col_var"], columns)
            variance = rows / xp.maximum(xp.mean(rows, axis=-2, keepdims=True), eps1) * columns
        update = _clipped(xp, grad / xp.sqrt(xp.maximum(variance, eps1 * eps1)), hyper["d"])

        size = norm(xp, param) / xp.sqrt(count(xp, param))
        relative = cast_like(xp, xp.minimum(hyper["lr"], 1.0 / xp.sqrt(steps)), param)
        rate = xp.maximum(size, cast_like(xp, hyper["eps2"], param)) * relative
        if self.weight_decay:
            param = cast_like(xp, 1.0 - hyper["lr"] * hyper["weight_decay"], param) * param
        return param - rate * update, {"row_var": slots["row_var"], "col_var": slots["col_var"]}


@dataclass(frozen=True)
class CAME(Descent):
    """CAME (Luo et al., ACL 2023, arXiv:2307.02047): Adafactor with momentum, and confidence in it.

    With R, C the running means (β₂) of g² + eps1 over rows and columns of the last two dimensions, and S, D those (β₃)
    of (u - m)² + eps2::

        u = g·√(mean(R)/R)·√(1/C)             for vectors and scalars g/√V, with V the running mean of g² + eps1
        u ← u/max(1, RMS(u)/clip_threshold)
        m ← β₁·m + (1 - β₁)·u
        θ ← θ - lr·m·√(mean(S)/S)·√(1/D)      for vectors and scalars lr·m

    There is no correction of the bias. Slots `exp_avg` (m), `exp_avg_sq_row` (R; V itself for vectors and scalars),
    `exp_avg_sq_col` (C), `exp_avg_res_row` (S) and `exp_avg_res_col` (D); vectors and scalars do not use the last
    three. Squares beyond 2⁻³² of the largest finite number count as that number.

    Semantics of the authors' package came-pytorch, with the learning rate that they use.
    """

    combined: ClassVar[Mapping[str, tuple[str, ...]]] = {"eps": ("eps1", "eps2")}

    lr: Schedule | float = 2e-4
    beta1: float = 0.9
    beta2: float = 0.999
    beta3: float = 0.9999
    eps1: float = 1e-30
    eps2: float = 1e-16
    clip_threshold: float = 1.0
    decay: Decay = "before"

    if TYPE_CHECKING:
        eps: Sequence[float] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("clip_threshold", self.clip_threshold)

    @property
    def elementwise(self) -> bool:
        """The moments and the clipping are those of the tensor."""
        return False

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return zeros, one for each element, row and column."""
        factors = ("exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_res_row", "exp_avg_res_col")
        slots = {**zeros(param, "exp_avg"), **{slot: _init_factor(slot, param) for slot in factors}}
        if param.ndim < 2:
            slots["exp_avg_res_row"] = np.zeros((), param.dtype)
        return slots

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        slots, lr = dict(state), cast_like(xp, hyper["lr"], param)
        square = finite_square(xp, grad) + cast_like(xp, hyper["eps1"], param)
        if param.ndim < 2:
            slots["exp_avg_sq_row"] = ema(xp, hyper["beta2"], state["exp_avg_sq_row"], square)
            scaled = grad / xp.sqrt(slots["exp_avg_sq_row"])
        else:
            scaled = grad * self._factors(xp, "exp_avg_sq", hyper["beta2"], square, slots)
        update = _clipped(xp, scaled, hyper["clip_threshold"])
        exp_avg = slots["exp_avg"] = ema(xp, hyper["beta1"], state["exp_avg"], update)
        if param.ndim < 2:
            return lr * exp_avg, slots
        surprise = update - exp_avg
        instability = surprise * surprise + cast_like(xp, hyper["eps2"], param)
        return lr * exp_avg * self._factors(xp, "exp_avg_res", hyper["beta3"], instability, slots), slots

    @staticmethod
    def _factors(xp: Namespace, name: str, beta: Array, square: Array, slots: dict[str, Array]) -> Array:
        """Average the means of `square` into their slots, and return the inverse root of their product."""
        row_mean, column_mean = _means(xp, square)
        rows = slots[f"{name}_row"] = ema(xp, beta, slots[f"{name}_row"], row_mean)
        columns = slots[f"{name}_col"] = ema(xp, beta, slots[f"{name}_col"], column_mean)
        return xp.sqrt(xp.mean(rows, axis=-2, keepdims=True) / rows) * (1.0 / xp.sqrt(columns))
