"""A step length that satisfies the strong Wolfe conditions.

With phi(t) = f(x + t d), a step t is accepted when

    phi(t) <= phi(0) + c1 t phi'(0)        (the loss falls enough)
    |phi'(t)| <= c2 |phi'(0)|              (and has nearly stopped falling)

J. Nocedal and S. Wright, Numerical Optimization, 2nd edition, algorithms 3.5 and 3.6 with the cubic of equation 3.59.
The safeguards are those of `torch.optim.LBFGS`, so that the same points are tried: a growing step stays between 1.01
and 10 times the last one's advance, and a trial point close to an end of the bracket is moved 10% inwards when the
last one was, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Point", "strong_wolfe"]

# Trial points after the first.
MOST_TRIALS = 25
# A bracket narrower than this, measured in the parameter that moves most, is not divided further.
RESOLUTION = 1e-9


class Point(NamedTuple):
    """A point on the line: its step, loss (infinite where it is no number), slope along the line, and gradient."""

    step: float
    loss: float
    slope: float
    gradient: NDArray[Any]


def strong_wolfe(
    evaluate: Callable[[float], Point],
    start: Point,
    first: float,
    reach: float,
    c1: float,
    c2: float,
    slack: float = 0.0,
) -> Point:
    """Search along a line.

    Args:
        evaluate: The point at a step.
        start: The point at step 0; its slope is negative.
        first: The step to try first.
        reach: The largest component of the direction.
        c1: How much of the decrease that the slope promises must be kept.
        c2: How much of the slope may be left.
        slack: How much the loss may rise all the same. Close to a minimum what is left to gain is less than the
            rounding of the loss, and the slope alone can tell which point is better (W. Hager and H. Zhang, "A new
            conjugate gradient method with guaranteed descent and an efficient line search", 2005).

    Returns:
        A point that satisfies both conditions; or the lowest one when the trials are used up, which is ``start`` if
        none was lower.
    """

    def too_high(point: Point) -> bool:
        return point.loss > start.loss + c1 * point.step * start.slope + slack

    def flat(point: Point) -> bool:
        return abs(point.slope) <= -c2 * start.slope

    previous, trial = start, evaluate(first)
    for count in range(MOST_TRIALS):
        if too_high(trial) or (count > 1 and trial.loss >= previous.loss):
            break
        if flat(trial):
            return trial
        if trial.slope >= 0:
            break
        least = trial.step + 0.01 * (trial.step - previous.step)
        previous, trial = trial, evaluate(_cubic_minimum(previous, trial, least, 10 * trial.step))
    else:
        return trial if trial.loss < start.loss else start

    low, high = (previous, trial) if previous.loss <= trial.loss else (trial, previous)
    stalled = False
    for _ in range(MOST_TRIALS - count):
        if abs(high.step - low.step) * reach < RESOLUTION:
            break
        left, right = sorted((low.step, high.step))
        step = _cubic_minimum(low, high, left, right)
        step, stalled = _inwards(step, left, right, stalled)
        trial = evaluate(step)
        if too_high(trial) or trial.loss >= low.loss:
            low, high = (low, trial) if low.loss <= trial.loss else (trial, low)
        elif flat(trial):
            return trial
        else:
            # The minimum lies on the side to which the loss falls.
            low, high = trial, low if trial.slope * (high.step - low.step) >= 0 else high
    return low


def _inwards(step: float, left: float, right: float, stalled: bool) -> tuple[float, bool]:
    """Move a step away from the end of the bracket if it did not help last time; and whether this one may not help."""
    margin = 0.1 * (right - left)
    if min(right - step, step - left) >= margin:
        return step, False
    if not stalled and left < step < right:
        return step, True
    return (right - margin if right - step < step - left else left + margin), False


def _cubic_minimum(one: Point, other: Point, least: float, most: float) -> float:
    """Where the cubic through two points with their slopes is lowest, within bounds; their middle if it is nowhere."""
    a, b = (one, other) if one.step <= other.step else (other, one)
    middle = (least + most) / 2
    if not (math.isfinite(a.loss) and math.isfinite(b.loss)) or a.step == b.step:
        return middle
    bend = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.step - b.step)
    square = bend**2 - a.slope * b.slope
    if square < 0:
        return middle
    root = math.sqrt(square)
    width = b.slope - a.slope + 2 * root
    if width == 0:
        return middle
    return min(max(b.step - (b.step - a.step) * ((b.slope + root - bend) / width), least), most)
