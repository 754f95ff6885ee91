"""The best value of a metric so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from edgeopt_runtime.callbacks.numbers import numbers_of
from edgeopt_runtime.errors import CallbackError

__all__ = ["Best", "Mode"]

Mode = Literal["min", "max", "auto"]

# What is better when smaller, and what when larger, by the end of its name.
SMALLER = ("loss", "mse", "mae", "rmse", "nll", "perplexity", "error")
LARGER = ("accuracy", "precision", "recall", "f1", "iou", "auroc", "auc", "r2", "similarity")


class Best:
    """Watches a metric.

    Args:
        metric: Its name among those of an epoch, ``loss`` or ``evaluate.accuracy``.
        mode: Whether small or large values are better. ``auto`` goes by the name: losses, errors and perplexity are to
            be small, accuracy, F1 and the like large.
        min_delta: Changes of up to so much are none.

    Raises:
        CallbackError: A setting has no meaning, or the name does not say what is better.
    """

    def __init__(self, metric: str, mode: Mode, min_delta: float = 0.0) -> None:
        if mode not in ("min", "max", "auto"):
            raise CallbackError(f'`mode` must be "min", "max" or "auto", not {mode!r}.')
        if not (math.isfinite(min_delta) and min_delta >= 0):
            raise CallbackError(f"`min_delta` must be a number, at least 0, not {min_delta!r}.")
        self.metric, self._min_delta = metric, min_delta
        self.smaller = _is_smaller_better(metric) if mode == "auto" else mode == "min"
        self.value = math.inf if self.smaller else -math.inf

    def improved(self, metrics: Mapping[str, Any]) -> bool:
        """Take in the metrics of an epoch; whether the value is better than all before. NaN is not.

        Raises:
            CallbackError: There is no such metric, or it is no number.
        """
        numbers = numbers_of(metrics)
        if self.metric not in numbers:
            raise CallbackError(f"There is no number `{self.metric}` after an epoch; there are {', '.join(numbers)}.")
        value = numbers[self.metric]
        gain = self.value - value if self.smaller else value - self.value
        if not gain > self._min_delta:
            return False
        self.value = value
        return True


def _is_smaller_better(metric: str) -> bool:
    """What a name says; losses of several are called `loss.NAME`."""
    name = metric.removeprefix("evaluate.")
    if name.startswith("loss.") or name.endswith(SMALLER):
        return True
    if name.endswith(LARGER):
        return False
    raise CallbackError(
        f'Whether a small or a large `{metric}` is better its name does not say: give mode="min" or "max".'
    )
