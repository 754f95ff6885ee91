"""The best value of a metric so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from edgeopt_runtime.errors import CallbackError

__all__ = ["Best", "Mode"]

Mode = Literal["min", "max", "auto"]

# What is better when smaller, by the last part of its name; everything else is better when larger.
SMALLER = ("loss", "mae", "rmse", "perplexity", "error")


class Best:
    """Watches a metric.

    Args:
        metric: Its name among those of an epoch, ``loss`` or ``evaluate.accuracy``.
        mode: Whether small or large values are better. ``auto`` goes by the name: losses, errors and perplexity are to
            be small, all else large.
        min_delta: Changes of up to so much are none.

    Raises:
        CallbackError: A setting has no meaning.
    """

    def __init__(self, metric: str, mode: Mode, min_delta: float = 0.0) -> None:
        if mode not in ("min", "max", "auto"):
            raise CallbackError(f'`mode` must be "min", "max" or "auto", not {mode!r}.')
        if not (math.isfinite(min_delta) and min_delta >= 0):
            raise CallbackError(f"`min_delta` must be a number, at least 0, not {min_delta!r}.")
        self.metric, self._min_delta = metric, min_delta
        small = any(metric.rpartition(".")[2].endswith(word) for word in SMALLER) or metric.startswith("loss.")
        self.smaller = small if mode == "auto" else mode == "min"
        self.value = math.inf if self.smaller else -math.inf

    def improved(self, metrics: Mapping[str, Any]) -> bool:
        """Take in the metrics of an epoch; whether the value is better than all before. NaN is not.

        Raises:
            CallbackError: There is no such metric, or it is no number.
        """
        if not isinstance(metrics.get(self.metric), (int, float)):
            numbers = [name for name, value in metrics.items() if isinstance(value, (int, float))]
            raise CallbackError(f"There is no number `{self.metric}` after an epoch; there are {', '.join(numbers)}.")
        value = float(metrics[self.metric])
        gain = self.value - value if self.smaller else value - self.value
        if not gain > self._min_delta:
            return False
        self.value = value
        return True
