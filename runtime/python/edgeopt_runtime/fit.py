"""The training loop: epochs, means, callbacks, early stopping."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeopt_runtime.batch import Batch
from edgeopt_runtime.errors import BatchError
from edgeopt_runtime.evaluation import Totals
from edgeopt_runtime.progress import Progress

if TYPE_CHECKING:
    from edgeopt_runtime.session import TrainingSession

__all__ = ["Batches", "Callback", "FitInfo", "History", "StopTraining", "fit"]

# The same batches for each epoch, or a function that returns those of the next one.
Batches = Iterable[Batch] | Callable[[], Iterable[Batch]]


class StopTraining(Exception):  # noqa: N818 - a signal like StopIteration, not an error
    """Raised by a callback of `fit` to end the training; what has been learned stays."""


@dataclass(frozen=True)
class FitInfo:
    """What a callback is told.

    Attributes:
        event: ``step`` after each step, ``epoch`` after each epoch.
        epoch: Number of the epoch, from 1.
        step: Steps done in this call of `fit`.
        metrics: Of this step; or of the epoch, as in `History.epochs`.
    """

    event: str
    epoch: int
    step: int
    metrics: dict[str, float]


Callback = Callable[["TrainingSession", FitInfo], object]


@dataclass
class History:
    """What happened in a call of `fit`; where an exception ended it, that has what happened before as its ``history``.

    Attributes:
        steps: The metrics of each step.
        epochs: For each finished epoch the loss and the metrics over all its batches, each as the step saw it, but for
            those that were skipped (NaN if all were): what `TrainingSession.evaluate` would say, were the weights not
            moving on. Of other numbers, such as ``lr``, and of bundles of schema version 1, the plain means over the
            steps. Under ``skipped`` how many were, if the session skips, and under ``evaluate.NAME`` the results on
            ``evaluate_on``.
        stopped: Whether a callback ended the training.
    """

    steps: list[dict[str, float]] = field(default_factory=list)
    epochs: list[dict[str, float]] = field(default_factory=list)
    stopped: bool = False


def fit(
    session: TrainingSession,
    batches: Batches,
    *,
    epochs: int,
    progress: bool,
    callbacks: Sequence[Callback],
    evaluate_on: Batches | None,
) -> History:
    """Train; see `TrainingSession.fit`."""
    history = History()
    try:
        for epoch in range(1, epochs + 1):
            source = batches() if callable(batches) else batches
            first = len(history.steps)
            count = len(source) if isinstance(source, Sized) else None
            line = Progress(f"epoch {epoch}/{epochs}", count, progress, later=epochs - epoch)
            totals = session._totals()
            try:
                for batch in source:
                    metrics = session._step(batch, totals)
                    history.steps.append(metrics)
                    line.update(len(history.steps) - first, metrics)
                    _tell(session, callbacks, FitInfo("step", epoch, len(history.steps), metrics))
            finally:
                line.close(len(history.steps) - first, _figures(history.steps[first:], totals))
            if len(history.steps) == first:
                raise BatchError(
                    f"There were no batches in epoch {epoch}. A generator serves one epoch only: give a list, or a "
                    "function that returns the batches of the next epoch."
                )
            means = _figures(history.steps[first:], totals)
            if evaluate_on is not None:
                results = session.evaluate(evaluate_on() if callable(evaluate_on) else evaluate_on)
                means.update({f"evaluate.{name}": value for name, value in results.items()})
            history.epochs.append(means)
            _tell(session, callbacks, FitInfo("epoch", epoch, len(history.steps), means))
    except StopTraining:
        history.stopped = True
    except BaseException as error:
        # Whatever ends the training, Ctrl-C too, what has been seen until then is not lost.
        error.history = history  # type: ignore[attr-defined]  # any exception takes attributes
        raise
    return history


def _tell(session: TrainingSession, callbacks: Sequence[Callback], info: FitInfo) -> None:
    for callback in callbacks:
        callback(session, info)


def _figures(steps: Sequence[dict[str, float]], totals: Totals | None) -> dict[str, float]:
    """Those of all batches together where sums say them, and means."""
    means = _means(steps)
    if totals is None or not totals.batches:
        return means
    together = totals.result()
    return {name: together.get(name, value) for name, value in means.items()}


def _means(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """The means over the steps that were not skipped, and how many were."""
    names = list(steps[0]) if steps else []
    taken = [metrics for metrics in steps if not metrics.get("skipped")]
    means = {name: _mean(name, [metrics[name] for metrics in taken]) for name in names if name != "skipped"}
    return {**means, "skipped": float(len(steps) - len(taken))} if "skipped" in names else means


def _mean(name: str, values: Sequence[float]) -> float:
    # A metric that counts nothing in a batch is 0/0 there, but a loss that is NaN is to be seen.
    counted = values if name == "loss" else [value for value in values if not math.isnan(value)]
    return sum(counted) / len(counted) if counted else math.nan
