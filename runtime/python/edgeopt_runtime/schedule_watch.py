"""Noticing that a schedule has come to its end."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from edgeopt_runtime.hyper import Hyperparameters
from edgeopt_runtime.manifest import Manifest
from edgeopt_runtime.state import StateBuffers

__all__ = ["ScheduleEndWarning", "ScheduleWatch"]


class ScheduleEndWarning(UserWarning):
    """An update had the rate 0: the schedule has come to its end, and the weights stay where they are."""


class ScheduleWatch:
    """Says once that updates have the rate 0.

    How long a schedule is depends on numbers that may be set at any time, so the rate itself is looked at. The first
    one of a warm-up is 0, and so are all if the rate has been set to that: neither is worth a word.

    Attributes:
        noticed: Whether it has been said.

    Args:
        manifest: The bundle's.
        state: The tensors.
        hyper: The hyperparameters.
    """

    def __init__(self, manifest: Manifest, state: StateBuffers, hyper: Hyperparameters) -> None:
        self._manifest, self._state, self._hyper = manifest, state, hyper
        self._counter, self._start = state.counter("step"), state.counter("start")
        self.noticed = False

    def look(self, metrics: Mapping[str, float]) -> None:
        """Look at the metrics of an update that has been committed."""
        still = [name for name, value in metrics.items() if value == 0 and (name == "lr" or name.startswith("lr_"))]
        if not still or self.noticed or self._counter is None:
            return
        completed = int(self._state.current(self._counter))
        begun = 0 if self._start is None else int(self._state.current(self._start))
        numbers = {name: value for name, value in self._hyper.values().items() if name.startswith("schedule.")}
        set_to_zero = any(not value for name, value in numbers.items() if name.rpartition(".")[2] == "lr")
        if completed - begun < 2 or set_to_zero:
            return
        self.noticed = True
        warnings.warn(
            f"The learning rate `{still[0]}` of update {completed} was 0: the schedule "
            f"({self._manifest.producer.get('schedule', 'of the bundle')}) has come to its end, or stands still here, "
            "and the weights do not move. To go on, begin it anew with `session.reset(schedule=True)`, make it longer "
            f"with `set_hyper` ({', '.join(numbers)}), or give the bundle another one with `Bundle.with_optimizer`.",
            ScheduleEndWarning,
            stacklevel=4,
        )
