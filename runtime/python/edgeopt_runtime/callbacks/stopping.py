"""An end to training that no longer helps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeopt_runtime.callbacks.best import Best, Mode
from edgeopt_runtime.errors import CallbackError
from edgeopt_runtime.fit import FitInfo, StopTraining

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeopt_runtime.session import TrainingSession

__all__ = ["EarlyStopping"]


class EarlyStopping:
    """Ends the training when a metric has not become better for ``patience`` epochs.

    Attributes:
        best_epoch: The number of the epoch with the best value, 0 before the first.
        stopped_epoch: That of the epoch after which training was ended, 0 if it was not.

    Args:
        metric: Which one, see `FitInfo.metrics` of an epoch.
        patience: How many epochs without a better value are allowed.
        min_delta: By how much a value must be better to count.
        mode: ``min``, ``max``, or ``auto`` by the metric's name.
        restore_best: Whether the session goes back to the state after the best epoch when training is ended, averages
            and the optimizer's state included. It is kept in memory, a copy of what training changes.

    Raises:
        CallbackError: A setting has no meaning; or, when it is called, there is no such metric.
    """

    def __init__(
        self,
        metric: str = "evaluate.loss",
        *,
        patience: int = 3,
        min_delta: float = 0.0,
        mode: Mode = "auto",
        restore_best: bool = True,
    ) -> None:
        if patience < 0:
            raise CallbackError(f"`patience` must be at least 0, not {patience!r}.")
        self._best, self._patience, self._restore = Best(metric, mode, min_delta), patience, restore_best
        self._kept: dict[str, NDArray[Any]] = {}
        self.best_epoch = self.stopped_epoch = 0
        self._since = 0

    @property
    def best(self) -> float:
        """The best value so far."""
        return self._best.value

    def __call__(self, session: TrainingSession, info: FitInfo) -> None:
        """Look at a finished epoch; raises `StopTraining` when it is time."""
        if info.event != "epoch":
            return
        if self._best.improved(info.metrics):
            self.best_epoch, self._since = info.epoch, 0
            if self._restore:
                self._kept = session.state(constants=False)
            return
        self._since += 1
        if self._since > self._patience:
            self.stopped_epoch = info.epoch
            if self._kept:
                session.restore(self._kept)
            raise StopTraining
