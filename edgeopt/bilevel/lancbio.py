"""LancBiO: gradient descent on a problem of two levels, with a Krylov space that follows the lower level's Hessian."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from edgeopt.bilevel.hypergradient import LinearSystem
from edgeopt.bilevel.layout import Layout
from edgeopt.bilevel.problem import BilevelProblem, Data, Tensors
from edgeopt.bilevel.result import BilevelResult, Progress, Record, StopReason
from edgeopt.checks import at_least, require
from edgeopt_runtime.errors import NonFiniteLossError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["growing", "lancbio"]

Rate: TypeAlias = "float | Callable[[int], float]"
Source: TypeAlias = "Data | Callable[[], Data] | None"


# Where rates are too large, numbers overflow, and an error says so.
@np.errstate(over="ignore", invalid="ignore")
def lancbio(
    problem: BilevelProblem,
    x: Tensors,
    y: Tensors,
    *,
    upper_lr: Rate,
    lower_lr: Rate = 0.1,
    iterations: int = 1000,
    lower_steps: int = 1,
    m: int | Callable[[int], int] = 10,
    v: Tensors | None = None,
    lower_data: Source = None,
    upper_data: Source = None,
    correct_residual: bool = True,
    reorthogonalize: bool = True,
    tolerance: float = 0.0,
    callback: Callable[[Progress], object] | None = None,
) -> BilevelResult:
    """Minimise f(x, y*(x)) over x, where y*(x) minimises g(x, ·).

    The gradient in x is ∇_x f - ∇²_xy g v with v = A⁻¹ b, A = ∇²_yy g and b = ∇_y f. LancBiO does not solve that
    system anew in each iteration k, but spends one product with A on it, in a subspace Q of up to m vectors:

        y ← y - θ ∇_y g(x, y),                          `lower_steps` times
        every m iterations:  v̄ = v,  w = A v̄,  and Q starts with (b - w) / ‖b - w‖
        Q, T ← one step of the Lanczos process with A as it is now
        v = v̄ + Q T⁻¹ Qᵀ (b - w),                        b as it is now
        x ← x - λ (∇_x f - ∇²_xy g v)

    Source: Y. Yang, B. Gao, Y. Yuan, LancBiO: Dynamic Lanczos-aided Bilevel Optimization via Krylov Subspace, ICLR
    2025, arXiv:2404.03331, in the order of the authors' program for their synthetic problem. It differs in this:
    vectors are orthogonalised against all earlier ones, because A moves (`reorthogonalize=False` is the three-term
    recurrence of the paper); v starts at zero; where the subspace is invariant before it has m vectors, the next
    iteration starts a new one; the number of vectors, not of iterations, says when m is reached.

    Args:
        problem: The derivatives.
        x: Where the upper variables start, arrays by name.
        y: Where the lower variables start.
        upper_lr: λ, a number or a function of the iteration, which counts from 0. The authors choose from 1 to 500.
        lower_lr: θ, in the same way; below 2 / (largest eigenvalue of A).
        iterations: Most steps in x.
        lower_steps: Steps in y for each step in x.
        m: Most vectors of a subspace, or a function of the iteration that gives it, such as `growing()`.
        v: Where the solution of the system starts: that of an earlier call, to go on from there.
        lower_data: What the derivatives of g get: one batch, or a function that draws one for each use, of which a
            step in y, the products with A in one iteration, and the product with ∇²_xy g are one each.
        upper_data: What f gets, in the same way, once an iteration.
        correct_residual: Whether v̄ is the last v. If not, it is zero: then no error stays, be it noise of samples or
            from the start, but m vectors have to make all of v.
        reorthogonalize: See above.
        tolerance: Stop when the norms of the upper gradient, the lower gradient and the residual are all at most this.
        callback: Called after each iteration; stops the run by returning True.

    Raises:
        ConfigurationError: A setting makes no sense.
        SignatureError: Names or shapes of variables and derivatives do not fit together.
        NonFiniteLossError: A derivative is not finite, or the lower problem has no curvature in the subspace.
    """
    _check(iterations, lower_steps, tolerance)
    draw_lower, draw_upper = _source(lower_data, "lower_data"), _source(upper_data, "upper_data")
    x_layout, y_layout = Layout(x, "x"), Layout(y, "y")
    x_vector, y_vector = x_layout.pack(x, "`x`"), y_layout.pack(y, "`y`")
    start = np.zeros(y_layout.size) if v is None else y_layout.pack(v, "`v`")
    system = LinearSystem(start, correct_residual=correct_residual, reorthogonalize=reorthogonalize)
    history: list[Record] = []
    reason: StopReason = "iterations"

    for k in range(iterations):
        x_now = x_layout.unpack(x_vector)
        slope = math.nan
        for _ in range(lower_steps):
            found = problem.lower_gradient(x_now, y_layout.unpack(y_vector), draw_lower())
            gradient = _finite(y_layout.pack(found, "lower_gradient"), "lower gradient", k)
            y_vector = y_vector - _rate(lower_lr, k, "lower_lr") * gradient
            slope = float(np.linalg.norm(gradient))
        y_now = y_layout.unpack(y_vector)

        upper = problem.upper(x_now, y_now, draw_upper())
        to_y = _finite(y_layout.pack(upper.to_y, "upper().to_y"), "upper gradient in y", k)
        sample = draw_lower()

        def apply(
            vector: NDArray[np.float64], x: Tensors = x_now, y: Tensors = y_now, data: Data = sample, k: int = k
        ) -> NDArray[np.float64]:
            product = problem.hessian_vector(x, y, y_layout.unpack(vector), data)
            return _finite(y_layout.pack(product, "hessian_vector"), "Hessian-vector product", k)

        residual = system.update(apply, to_y, _size(m, k))
        v_now = y_layout.unpack(system.v)
        cross = x_layout.pack(problem.cross_vector(x_now, y_now, v_now, draw_lower()), "cross_vector")
        hyper = _finite(x_layout.pack(upper.to_x, "upper().to_x") - cross, "hyper-gradient", k)
        _finite(np.asarray(upper.loss), "upper loss", k)
        x_vector = x_vector - _rate(upper_lr, k, "upper_lr") * hyper

        record = Record(k, float(upper.loss), float(np.linalg.norm(hyper)), slope, residual, system.size)
        history.append(record)
        if callback is not None and callback(Progress(record, x_layout.unpack(x_vector), y_now, v_now)) is True:
            reason = "callback"
            break
        if max(record.hyper_gradient, record.lower_gradient, record.residual) <= tolerance:
            reason = "tolerance"
            break
    return BilevelResult(
        x_layout.unpack(x_vector), y_layout.unpack(y_vector), y_layout.unpack(system.v), tuple(history), reason
    )


def growing(first: int = 1, factor: float = 1.3, every: int = 50, most: int = 10) -> Callable[[int], int]:
    """The size of subspaces in the authors' programs: `first`, times `factor` rounded up every so many iterations.

    With the defaults, those for data cleaning, it takes 300 iterations to grow from 1 to 10.

    Raises:
        ConfigurationError: It would not grow.
    """
    at_least("first", first, 1)
    at_least("every", every, 1)
    at_least("most", most, first)
    require(factor > 1, f"factor must be above 1, got {factor!r}")
    sizes = [first]
    while sizes[-1] < most:
        sizes.append(min(most, math.ceil(sizes[-1] * factor)))
    return lambda iteration: sizes[min(iteration // every, len(sizes) - 1)]


def _check(iterations: int, lower_steps: int, tolerance: float) -> None:
    at_least("iterations", iterations, 0)
    at_least("lower_steps", lower_steps, 1)
    at_least("tolerance", tolerance, 0.0)


def _rate(rate: Rate, iteration: int, name: str) -> float:
    value = rate(iteration) if callable(rate) else rate
    # In float64, so that it may be as small as that goes.
    at_least(name, value, 0.0)
    require(value > 0.0, f"{name} must be above 0, got {value!r}")
    return float(value)


def _size(m: int | Callable[[int], int], iteration: int) -> int:
    value = m(iteration) if callable(m) else m
    at_least("m", value, 1)
    return int(value)


def _source(data: Source, name: str) -> Callable[[], Data]:
    if callable(data):
        return data
    fixed: Data = {} if data is None else data
    require(isinstance(fixed, Mapping), f"{name} must be arrays by name or a function that gives them, got {data!r}")
    return lambda: fixed


def _finite(vector: NDArray[Any], what: str, iteration: int) -> NDArray[Any]:
    if not np.isfinite(vector).all():
        raise NonFiniteLossError(
            f"The {what} of iteration {iteration} is not finite. Use smaller rates, and check the data for NaN.", {}
        )
    return vector
