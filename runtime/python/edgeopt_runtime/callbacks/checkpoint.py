"""The best state so far, on disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edgeopt_runtime.callbacks.best import Best, Mode
from edgeopt_runtime.errors import CallbackError
from edgeopt_runtime.fit import FitInfo

if TYPE_CHECKING:
    from edgeopt_runtime.session import TrainingSession

__all__ = ["BestCheckpoint"]


class BestCheckpoint:
    """Saves the session whenever a metric is better than after every epoch before; see `TrainingSession.save`.

    The file is replaced as a whole: one that cannot be written leaves the one before. It holds the optimizer's state
    too, so that training goes on from it.

    Attributes:
        best_epoch: The number of the epoch that was saved last, 0 before the first.

    Args:
        path: Where to.
        metric: Which one, see `FitInfo.metrics` of an epoch; None saves after every epoch.
        mode: ``min``, ``max``, or ``auto`` by the metric's name.
        every: Look after every so many epochs.

    Raises:
        CallbackError: A setting has no meaning; or, when it is called, there is no such metric.
        StorageError: When it is called: the bundle cannot be written.
    """

    def __init__(
        self, path: str | os.PathLike[str], metric: str | None = "evaluate.loss", *, mode: Mode = "auto", every: int = 1
    ) -> None:
        if every < 1:
            raise CallbackError(f"`every` must be at least 1, not {every!r}.")
        self._path, self._every = path, every
        self._best = None if metric is None else Best(metric, mode)
        self.best_epoch = 0

    def __call__(self, session: TrainingSession, info: FitInfo) -> None:
        """Look at a finished epoch."""
        due = info.event == "epoch" and info.epoch % self._every == 0
        if due and (self._best is None or self._best.improved(info.metrics)):
            session.save(self._path)
            self.best_epoch = info.epoch
