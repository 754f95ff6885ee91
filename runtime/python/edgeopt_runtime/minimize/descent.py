"""The loop that all methods share: propose a direction, choose a step, decide whether to stop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edgeopt_runtime.errors import NonFiniteLossError
from edgeopt_runtime.minimize.line_search import Point, strong_wolfe
from edgeopt_runtime.minimize.method import Method, Move, Rule
from edgeopt_runtime.minimize.objective import Evaluation, Objective

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MinimizeResult", "StopReason", "descend"]

StopReason = Literal["gradient", "change", "line_search", "max_iter", "max_eval"]


@dataclass(frozen=True)
class MinimizeResult:
    """How a call of `TrainingSession.minimize` ended.

    Attributes:
        loss: Mean loss over the batches at the weights that the session has now.
        gradient_norm: Euclidean norm of its gradient there; NaN from ``mezo``, which has no gradient.
        iterations: Directions followed.
        evaluations: Passes over the batches that gave the loss, and its gradient where the method uses it.
        hessian_vector_products: Passes over the batches that applied the Hessian.
        reason: Why it stopped. ``gradient``: no component of the gradient exceeds ``tolerance_grad``. ``change``: the
            loss, every parameter, or the decrease that the slope promises changes by less than ``tolerance_change``.
            ``line_search``: no lower point was found in the last direction, as happens when rounding outweighs what
            is left to gain. ``max_iter``, ``max_eval``: the limits.
    """

    loss: float
    gradient_norm: float
    iterations: int
    evaluations: int
    hessian_vector_products: int
    reason: StopReason

    @property
    def converged(self) -> bool:
        """Whether a tolerance was reached."""
        return self.reason in ("gradient", "change")


def descend(objective: Objective, rule: Rule, method: Method) -> tuple[NDArray[Any], MinimizeResult]:
    """Minimise.

    Returns:
        The last point, and how it went.

    Raises:
        NonFiniteLossError: The loss at the start, or at a step taken without a line search, is not finite; or the
            direction is not.
    """
    x = objective.start()
    here = _finite(objective.evaluate(x), "at the start")
    iterations = 0
    reason: StopReason | None = "gradient" if _largest(here.gradient) <= method.tolerance_grad else None
    while reason is None and iterations < method.max_iter:
        iterations += 1
        direction = rule.direction(x, here.gradient)
        slope = _dot(here.gradient, direction)
        if not math.isfinite(slope):
            raise NonFiniteLossError(f"The direction of iteration {iterations} is not finite.", {"loss": here.loss})
        if slope >= 0 or slope > -method.tolerance_change:
            reason = "change"
            break
        first = method.lr
        if iterations == 1 and rule.scales_first_step:
            first *= min(1.0, 1.0 / float(np.abs(here.gradient).sum()))
        step, new = _step(objective, method, x, direction, here, slope, first)
        change = step * direction
        x = (x + change).astype(x.dtype)
        rule.learn(Move(step, change, here.gradient, new.gradient))
        reason = _reason(method, objective, step, change, here.loss, new)
        here = new
    return x, MinimizeResult(
        loss=here.loss,
        gradient_norm=float(np.linalg.norm(here.gradient)),
        iterations=iterations,
        evaluations=objective.evaluations,
        hessian_vector_products=objective.products,
        reason=reason or "max_iter",
    )


def _step(
    objective: Objective,
    method: Method,
    x: NDArray[Any],
    direction: NDArray[Any],
    here: Evaluation,
    slope: float,
    first: float,
) -> tuple[float, Evaluation]:
    def at(step: float) -> Evaluation:
        return objective.evaluate((x + step * direction).astype(x.dtype))

    if method.line_search_fn is None:
        return first, _finite(at(first), "after a step without line search")

    def point(step: float) -> Point:
        found = at(step)
        loss = found.loss if found.finite else math.inf
        return Point(step, loss, _dot(found.gradient, direction), found.gradient)

    start = Point(0.0, here.loss, slope, here.gradient)
    slack = method.roundings * float(np.finfo(here.gradient.dtype).eps) * abs(here.loss)
    chosen = strong_wolfe(point, start, first, _largest(direction), method.c1, method.c2, slack)
    return chosen.step, Evaluation(chosen.loss, chosen.gradient)


def _reason(
    method: Method, objective: Objective, step: float, change: NDArray[Any], before: float, new: Evaluation
) -> StopReason | None:
    if _largest(new.gradient) <= method.tolerance_grad:
        return "gradient"
    if step == 0:
        return "line_search"
    if _largest(change) <= method.tolerance_change or abs(new.loss - before) < method.tolerance_change:
        return "change"
    if method.max_eval is not None and objective.evaluations >= method.max_eval:
        return "max_eval"
    return None


def _finite(evaluation: Evaluation, where: str) -> Evaluation:
    if not evaluation.finite:
        raise NonFiniteLossError(
            f"The loss {where} is {evaluation.loss}, or its gradient is not finite; the state is as it was before. "
            "Use a line search or a smaller `lr`, and check the batches for NaN.",
            {"loss": evaluation.loss},
        )
    return evaluation


def _largest(vector: NDArray[Any]) -> float:
    return float(np.abs(vector).max(initial=0.0))


def _dot(a: NDArray[Any], b: NDArray[Any]) -> float:
    return float(np.dot(a, b))
