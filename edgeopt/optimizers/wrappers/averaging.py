"""An average of the parameters on the side, for evaluation: around any rule, and built into Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, fraction, require
from edgeopt.optimizers.base import Arrays, Updated, static
from edgeopt.optimizers.rules.adaptive.adam import Adam
from edgeopt.optimizers.wrappers.wrapper import Following, beside

__all__ = ["Averaged", "AveragedAdam", "Averaging"]

#: How parameters are averaged.
Averaging: TypeAlias = Literal["mean", "ema", "debiased"]

SLOT = "averaged_param"


def _share(xp: Namespace, mode: Averaging, beta: Array | None, count: Array) -> Array:
    """The weight of the parameter in the average that it is the `count`th to enter, 1 up to the first."""
    one = xp.ones_like(count)
    count = xp.maximum(count, one)
    if mode == "mean" or beta is None:
        return 1.0 / count
    if mode == "ema":
        return xp.where(count > 1.0, 1.0 - beta, one)
    return (1.0 - beta) / (1.0 - beta**count)


def _moved(xp: Namespace, average: Array, param: Array, share: Array) -> Array:
    """The average with the parameter in it; the same average, bit by bit, where its share is 0."""
    return average + cast_like(xp, share, param) * (param - average)


@dataclass(frozen=True)
class Averaged(Following):
    """An average of the parameters beside another optimizer: SWA (Izmailov et al., UAI 2018, arXiv:1803.05407) or EMA.

    The inner optimizer trains as it would alone. Evaluation, prediction and the exported model use the average a of
    the parameters after the updates start + every, start + 2·every, …; with k the number of those so far::

        mean        a ← a + (θ - a)/k
        ema         a ← beta·a + (1 - beta)·θ          a ← θ at the first
        debiased    a ← a + (1 - beta)/(1 - betaᵏ)·(θ - a)

    Up to the first of them a follows θ. Slots are those of the inner optimizer and `averaged_param` (a). The
    hyperparameter of beta is called `averaged.beta`; the others and the learning rate are the inner optimizer's.

    Semantics of `torch.optim.swa_utils.AveragedModel`: the mean is its default, and ema its `get_ema_avg_fn`. Like
    there, running statistics of a batch normalisation are those of the training.

    Raises:
        ConfigurationError: A number out of its range, an unknown mode, or `inner` is no optimizer.
    """

    mode: Averaging = "mean"
    start: int = static(0)
    every: int = static(1)
    beta: float = 0.999

    def __post_init__(self) -> None:
        super().__post_init__()
        modes = get_args(Averaging)
        require(self.mode in modes, f"mode must be one of {', '.join(modes)}, got {self.mode!r}")
        at_least("start", self.start, 0)
        at_least("every", self.every, 1)
        fraction("beta", self.beta)

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the slots of the inner optimizer, and the parameter for the average."""
        return beside(super().init(param), {SLOT: param.copy()})

    def hyperparameters(self) -> dict[str, float]:
        """Return the numbers of the inner optimizer, and beta where it is used."""
        own = {} if self.mode == "mean" else {"averaged.beta": float(self.beta)}
        return beside(super().hyperparameters(), own)

    def follow(
        self, xp: Namespace, param: Array, slots: dict[str, Array], state: Arrays, hyper: Arrays, step: Array
    ) -> Updated:
        """Average the parameter."""
        return param, {**slots, SLOT: _moved(xp, state[SLOT], param, self._due_share(xp, hyper, step))}

    def _due_share(self, xp: Namespace, hyper: Arrays, step: Array) -> Array:
        """The weight of the parameter after this update: 0 where it does not enter."""
        turns = (xp.astype(step, xp.float64) - float(self.start)) / float(self.every)
        due = xp.logical_or(turns <= 1.0, turns == xp.floor(turns))
        share = _share(xp, self.mode, hyper.get("averaged.beta"), turns)
        return xp.where(due, share, xp.zeros_like(share))

    def view(self, xp: Namespace, param: Array, state: Arrays, hyper: Arrays, step: Array) -> Array:
        """Return the average."""
        return state[SLOT]


@dataclass(frozen=True)
class AveragedAdam(Adam):
    """Adam that is evaluated at an average of its parameters (Dereich, Jentzen et al. 2025, arXiv:2501.06081).

    The step of `Adam`; evaluation, prediction and the exported model use a::

        θ ← Adam(θ, g)
        a ← a + (1 - β₃)/(1 - β₃ᵗ)·(θ - a)

    with β₃ = `beta_average`: an exponential moving average without bias towards the first parameters. Slots are
    those of Adam and `averaged_param` (a), which begins as the parameter. For other rules and averages: `Averaged`.

    Semantics of `torch.optim.Adam` and of the paper's exponential average, with its bias corrected as Adam does it.
    """

    beta_average: float = 0.999

    def init(self, param: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the slots of Adam, and the parameter for the average."""
        return {**super().init(param), SLOT: param.copy()}

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take one step; see the class for the equations."""
        moved, slots = super().update(xp, param, grad, state, hyper, step)
        share = _share(xp, "debiased", hyper["beta_average"], xp.astype(step, xp.float64))
        return moved, {**slots, SLOT: _moved(xp, state[SLOT], moved, share)}

    def view(self, xp: Namespace, param: Array, state: Arrays, hyper: Arrays, step: Array) -> Array:
        """Return the average."""
        return state[SLOT]
