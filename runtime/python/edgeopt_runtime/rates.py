"""Learning rates that follow the loss: callbacks of `fit`.

A bundle's own schedule is a function of the step. What depends on results is decided outside of the graph, from the
metrics that `fit` reports, and set as a hyperparameter; so a bundle that is saved keeps the rate that was reached. The
counters of a callback are its own: to go on where it was, keep the callback and pass it to `fit` again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from edgeopt_runtime.errors import HyperparameterError

if TYPE_CHECKING:
    from edgeopt_runtime.fit import FitInfo
    from edgeopt_runtime.session import TrainingSession

__all__ = ["GreedyLR", "ReduceLROnPlateau"]


@dataclass(eq=False)
class _LossFed(ABC):
    """What both have in common: which metric is read when, what counts as better, which rate is set."""

    factor: float = 0.1
    patience: int = 10
    threshold: float = 1e-4
    threshold_mode: Literal["rel", "abs"] = "rel"
    mode: Literal["min", "max"] = "min"
    cooldown: int = 0
    min_lr: float = 0.0
    eps: float = 1e-8
    metric: str = "loss"
    every: Literal["step", "epoch"] = "epoch"
    hyper: str = "schedule.lr"

    def __post_init__(self) -> None:
        _require(0.0 < self.factor < 1.0, f"factor must lie between 0 and 1, got {self.factor!r}")
        _require(self.mode in ("min", "max"), f"mode must be min or max, got {self.mode!r}")
        _require(
            self.threshold_mode in ("rel", "abs"), f"threshold_mode must be rel or abs, got {self.threshold_mode!r}"
        )
        _require(self.every in ("step", "epoch"), f"every must be step or epoch, got {self.every!r}")
        for name in ("patience", "cooldown", "min_lr", "eps"):
            _require(getattr(self, name) >= 0, f"{name} must be at least 0, got {getattr(self, name)!r}")
        self.best = self._worst

    def __call__(self, session: TrainingSession, info: FitInfo) -> None:
        """Read the metric, and set the rate if it is time to.

        Raises:
            HyperparameterError: There is no such metric, or no such hyperparameter.
        """
        if info.event != self.every:
            return
        if self.metric not in info.metrics:
            raise HyperparameterError(
                f"There is no metric `{self.metric}` after each {self.every}; there are {', '.join(info.metrics)}."
            )
        if self.hyper not in session.hyperparameters:
            raise HyperparameterError(
                f"There is no hyperparameter `{self.hyper}`; there are {', '.join(session.hyperparameters)}."
            )
        rate = session.hyperparameters[self.hyper]
        new = self.next_rate(info.metrics[self.metric], rate)
        if new != rate:
            session.set_hyper(self.hyper, new)

    @abstractmethod
    def next_rate(self, value: float, rate: float) -> float:
        """Take in one value of the metric, and return the rate to go on with."""

    @property
    def _worst(self) -> float:
        return math.inf if self.mode == "min" else -math.inf

    def _better(self, value: float) -> bool:
        sign = 1.0 if self.mode == "min" else -1.0
        if self.threshold_mode == "rel":
            return sign * value < sign * self.best * (1.0 - sign * self.threshold)
        return sign * value < sign * self.best - self.threshold

    def _reduced(self, rate: float) -> float:
        new = max(rate * self.factor, self.min_lr)
        return new if rate - new > self.eps else rate


@dataclass(eq=False)
class ReduceLROnPlateau(_LossFed):
    """Multiply the rate by `factor` after more than `patience` values in a row that are not better.

    Semantics and defaults of `torch.optim.lr_scheduler.ReduceLROnPlateau`.

    Args:
        factor: Of each reduction.
        patience: Number of values that need not be better.
        threshold: By how much a value must be better: a share of the best one with ``"rel"``, a difference with
            ``"abs"``.
        threshold_mode: ``"rel"`` or ``"abs"``.
        mode: ``"min"`` if smaller is better, or ``"max"``.
        cooldown: Number of values after a reduction that are not counted as bad.
        min_lr: No rate is below it.
        eps: A reduction by no more than this is left out.
        metric: The name of the metric as `fit` reports it: ``"loss"``, or ``"evaluate.loss"`` with ``evaluate_on``.
        every: Whether the metric is read after each ``"epoch"`` or each ``"step"``.
        hyper: The hyperparameter that is set; all of a schedule's shape follows it.

    Raises:
        HyperparameterError: A setting out of its range; later, a metric or a hyperparameter that does not exist.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._bad = self._resting = 0

    def next_rate(self, value: float, rate: float) -> float:
        """Take in one value of the metric, and return the rate to go on with."""
        if self._better(value):
            self.best, self._bad = value, 0
        else:
            self._bad += 1
        if self._resting:
            self._resting, self._bad = self._resting - 1, 0
        if self._bad <= self.patience:
            return rate
        self._resting, self._bad = self.cooldown, 0
        return self._reduced(rate)


@dataclass(eq=False)
class GreedyLR(_LossFed):
    """Divide the rate by `factor` while values keep getting better, multiply it while they do not.

    Either happens after more than `patience` such values in a row (arXiv:2512.14527). When it was to be reduced
    `reset_start` times at `min_lr`, without having risen in between, all starts anew from the first rate.

    Semantics and defaults of `transformers.GreedyLR`.

    Args:
        factor: Of each change.
        patience: Number of values in a row that change nothing yet.
        threshold: As in `ReduceLROnPlateau`.
        threshold_mode: ``"abs"`` or ``"rel"``.
        mode: ``"min"`` if smaller is better, or ``"max"``.
        cooldown: Number of values after a reduction that are not looked at.
        warmup: Number of values after a rise that are not looked at.
        min_lr: No rate is below it.
        max_lr: No rate is above it.
        eps: A change by no more than this is left out.
        window: Number of values whose mean is looked at; 1 for the value itself.
        reset_start: See above.
        metric: As in `ReduceLROnPlateau`.
        every: As there, by default after each step.
        hyper: As there.

    Raises:
        HyperparameterError: A setting out of its range; later, a metric or a hyperparameter that does not exist.
    """

    factor: float = 0.95
    threshold: float = 1e-6
    threshold_mode: Literal["rel", "abs"] = "abs"
    min_lr: float = 1e-3
    every: Literal["step", "epoch"] = "step"
    warmup: int = 0
    max_lr: float = 1.0
    window: int = 1
    reset_start: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.warmup >= 0, f"warmup must be at least 0, got {self.warmup!r}")
        _require(self.max_lr >= self.min_lr, f"max_lr must be at least min_lr, got {self.max_lr!r}")
        _require(self.window >= 1, f"window must be at least 1, got {self.window!r}")
        self._good = self._bad = self._resting = 0
        self._left = self.reset_start
        self._first: float | None = None
        self._values: deque[float] = deque(maxlen=self.window)

    def next_rate(self, value: float, rate: float) -> float:
        """Take in one value of the metric, and return the rate to go on with."""
        self._first = rate if self._first is None else self._first
        self._values.append(value)
        value = math.fsum(self._values) / len(self._values)
        if self._resting:
            self._resting -= 1
            self._bad = self._good = 0
            return rate
        if self._better(value):
            self.best, self._bad, self._good = value, 0, self._good + 1
        else:
            self._bad, self._good = self._bad + 1, 0
        if self._good > self.patience:
            self._resting, self._good, self._left = self.warmup, 0, self.reset_start
            new = min(rate / self.factor, self.max_lr)
            return new if new - rate > self.eps else rate
        if self._bad > self.patience:
            rate = self._reduced(rate)
            self._left -= rate <= self.min_lr
            if self._left <= 0:
                self._start_anew()
                rate = self._first
            self._resting, self._bad = self.cooldown, 0
        return rate

    def _start_anew(self) -> None:
        self.best = self._worst
        self._good = self._bad = self._resting = 0
        self._left = self.reset_start
        self._values.clear()


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise HyperparameterError(message)
