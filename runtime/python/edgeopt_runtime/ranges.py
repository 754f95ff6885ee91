"""The values that a number may have."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Range"]


@dataclass(frozen=True)
class Range:
    """An interval of finite numbers; an end that is None is open to all of them.

    An end that does not belong to the interval itself is also kept clear of by what float32, in which most graphs
    compute, rounds to it: 0.99999999999 is not below 1.

    Attributes:
        at_least: The lowest value.
        above: What all values exceed.
        at_most: The highest value.
        below: What no value reaches.
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def __contains__(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        inside = (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)
        rounded = _in_float32(value)
        return (
            inside
            and (self.above is None or (value > self.above and rounded > self.above))
            and (self.below is None or (value < self.below and rounded < self.below))
        )

    def __str__(self) -> str:
        """What a value must be, such as ``at least 0`` or ``in [0, 1)``."""
        low, high = _first(self.at_least, self.above), _first(self.at_most, self.below)
        if low is None and high is None:
            return "finite"
        if low is not None and high is not None:
            return f"in {'[' if self.above is None else '('}{low:g}, {high:g}{']' if self.below is None else ')'}"
        if low is not None:
            return f"{'at least' if self.above is None else 'above'} {low:g}"
        return f"{'at most' if self.below is None else 'below'} {high:g}"

    def ends(self) -> dict[str, float]:
        """The ends that there are, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def within(self, other: Range) -> Range:
        """The values that are in both."""
        lows = [(end, strict) for each in (self, other) for end, strict in ((each.at_least, False), (each.above, True))]
        highs = [(end, strict) for each in (self, other) for end, strict in ((each.at_most, False), (each.below, True))]
        low = max(((end, strict) for end, strict in lows if end is not None), default=(None, False))
        high = min(((end, not strict) for end, strict in highs if end is not None), default=(None, True))
        return Range(
            at_least=None if low[1] else low[0],
            above=low[0] if low[1] else None,
            at_most=high[0] if high[1] else None,
            below=None if high[1] else high[0],
        )


def _in_float32(value: float) -> float:
    largest = float(np.finfo(np.float32).max)
    return float(np.float32(value)) if abs(value) <= largest else value


def _first(*ends: float | None) -> float | None:
    return next((end for end in ends if end is not None), None)
