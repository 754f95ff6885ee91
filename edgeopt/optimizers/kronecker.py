"""Rules that precondition with what enters and leaves a layer: Eva and AdaFisher.

An exported update sees gradients only, so a bundle refuses both with a `SignatureError`; they run where the caller has
the layers at hand and gives the statistics. That is why neither is in the registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace, cast_like
from edgeopt.checks import at_least, fraction, positive
from edgeopt.optimizers.averages import bias_correction, ema
from edgeopt.optimizers.base import Arrays, Collective, GroupArrays, Rule, Updated, UpdatedAll, static, zeros
from edgeopt.optimizers.descent import Decay, Descent
from edgeopt.optimizers.ingredients import Ingredient, LayerStatistic
from edgeopt.optimizers.timing import kept_unless, starts_period
from edgeopt.schedules import Schedule

__all__ = ["AdaFisher", "Eva"]

NumpyArray = np.ndarray[Any, Any]


def _statistics(param: NumpyArray, inputs: str, outputs: str) -> dict[str, Ingredient]:
    """One number for each input and each output of a layer whose weight is (outputs, inputs)."""
    if param.ndim != 2:
        return {}
    rows, columns = param.shape
    return {"inputs": LayerStatistic((columns,), inputs), "outputs": LayerStatistic((rows,), outputs)}


def _ranged(xp: Namespace, x: Array) -> Array:
    """Moved and scaled to [0, 1]; 0 where all elements are equal."""
    low = xp.min(x)
    spread = xp.max(x) - low
    return (x - low) / xp.where(spread > 0, spread, xp.ones_like(spread))


@dataclass(frozen=True)
class Eva(Collective, Rule):
    """Eva (Zhang, Shi and Li, ICLR 2023; arXiv:2308.02123): Kronecker-factored curvature as two vectors.

    For a matrix G of outputs and inputs, with the layer's mean input ā and mean gradient b̄ of its output::

        a ← xi·a + (1 - xi)·ā,  b ← xi·b + (1 - xi)·b̄
        U = (G - (bᵀ·G·a)/(‖a‖²·‖b‖² + damping)·b·aᵀ)/damping
        n = min(1, √(kl_clip/Σ lr²·⟨U, G⟩)), over all matrices of the group
        c ← momentum·c + n·U
        θ ← θ - lr·c

    Vectors and tensors of other dimensions take U = G and n = 1. Slots `input_mean` (a), `output_mean` (b) and
    `momentum_buffer` (c). Weight decay is added to the gradient, but not to the G above; one of exactly 0.0 is left
    out. `maximize` climbs.

    Semantics of the paper, with the defaults of the authors' code, except that a bias is a vector of its own and not a
    column of G. ā and b̄ are given by the caller; a bundle cannot compute them, and refuses the rule.
    """

    optional = frozenset({"weight_decay"})

    lr: Schedule | float = 0.1
    momentum: float = 0.9
    xi: float = 0.95
    damping: float = 0.03
    kl_clip: float = 1e-3
    weight_decay: float = 0.0
    maximize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("momentum", self.momentum)
        fraction("xi", self.xi)
        positive("damping", self.damping)

    @property
    def elementwise(self) -> bool:
        """The rule is one of matrices."""
        return False

    def init(self, param: NumpyArray) -> dict[str, NumpyArray]:
        """Return zeros."""
        slots = zeros(param, "momentum_buffer")
        if param.ndim == 2:
            rows, columns = param.shape
            slots |= {"input_mean": np.zeros(columns, param.dtype), "output_mean": np.zeros(rows, param.dtype)}
        return slots

    def ingredients(self, param: NumpyArray) -> dict[str, Ingredient]:
        """The mean input and the mean gradient of the output."""
        return _statistics(param, "the inputs", "the gradients of the outputs")

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take one step; see the class for the equations."""
        params, grads, states, _ = group
        sign = -1.0 if self.maximize else 1.0
        directions: dict[str, Array] = {}
        slots: dict[str, dict[str, Array]] = {name: {} for name in params}
        total = 0.0 * hyper["lr"]
        for name, param in params.items():
            grad, state = sign * grads[name], states[name]
            directions[name] = grad
            if param.ndim != 2:
                continue
            a = ema(xp, hyper["xi"], state["input_mean"], state["inputs"])
            b = ema(xp, hyper["xi"], state["output_mean"], sign * state["outputs"])
            column, row, damping = (
                xp.expand_dims(b, axis=1),
                xp.expand_dims(a, axis=0),
                cast_like(xp, hyper["damping"], a),
            )
            share = xp.sum(column * grad * row) / (xp.sum(a * a) * xp.sum(b * b) + damping)
            directions[name] = (grad - share * (column * row)) / damping
            total = total + hyper["lr"] * hyper["lr"] * xp.astype(xp.sum(directions[name] * grad), xp.float64)
            slots[name] = {"input_mean": a, "output_mean": b}
        some = total > 0
        ratio = xp.sqrt(hyper["kl_clip"] / xp.where(some, total, xp.ones_like(total)))
        clip = xp.where(some, xp.minimum(ratio, xp.ones_like(ratio)), xp.ones_like(ratio))

        moved: dict[str, Array] = {}
        for name, param in params.items():
            direction = directions[name]
            if param.ndim == 2:
                direction = cast_like(xp, clip, param) * direction
            if self.weight_decay:
                direction = direction + cast_like(xp, hyper["weight_decay"], param) * param
            buffer = cast_like(xp, hyper["momentum"], param) * states[name]["momentum_buffer"] + direction
            moved[name] = param - cast_like(xp, hyper["lr"], param) * buffer
            slots[name]["momentum_buffer"] = buffer
        return moved, slots, {}


@dataclass(frozen=True)
class AdaFisher(Descent):
    """AdaFisher (Gomes et al., ICLR 2025, arXiv:2405.16397): the Fisher matrix as diagonals of Kronecker factors.

    For a matrix of outputs and inputs, with the means ā² of squared inputs and b̄² of squared gradients of the outputs::

        h ← keep·h + add·range(ā²),  s ← keep·s + add·range(b̄²)   at the updates 1, 1 + every, 1 + 2·every, …
        m ← β₁·m + (1 - β₁)·g
        θ ← θ·(1 - lr·weight_decay) - lr/(1 - β₁ᵗ)·m/(s·hᵀ + damping)

    range moves and scales a vector to [0, 1]; h and s begin as ones. There is no root. Vectors and tensors of other
    dimensions have 1 in the place of s·hᵀ. Slots `exp_avg` (m), `input_factor` (h) and `output_factor` (s). With weight
    decay, none by default, this is AdaFisherW.

    Semantics of the authors' code, whose keep and add are gamma·0.1 and gamma·0.01 with gamma = 0.8 (an older release
    has 0.92 and 0.008), except that a bias is a vector of its own. ā² and b̄² are given by the caller; a bundle cannot
    compute them, and refuses the rule.
    """

    beta1: float = 0.9
    keep: float = 0.08
    add: float = 0.008
    damping: float = 1e-3
    every: int = static(100)
    decay: Decay = "before"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("damping", self.damping)
        at_least("every", self.every, 1)

    @property
    def elementwise(self) -> bool:
        """The rule is one of matrices."""
        return False

    def init(self, param: NumpyArray) -> dict[str, NumpyArray]:
        """Return zeros for the momentum, and ones for the factors."""
        slots = zeros(param, "exp_avg")
        if param.ndim == 2:
            rows, columns = param.shape
            slots |= {"input_factor": np.ones(columns, param.dtype), "output_factor": np.ones(rows, param.dtype)}
        return slots

    def ingredients(self, param: NumpyArray) -> dict[str, Ingredient]:
        """The means of squares."""
        return _statistics(param, "the squared inputs", "the squared gradients of the outputs")

    def delta(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the step; see the class for the equations."""
        exp_avg = ema(xp, hyper["beta1"], state["exp_avg"], grad)
        slots, fisher = {"exp_avg": exp_avg}, xp.ones_like(param)
        if param.ndim == 2:
            due = starts_period(xp, step, self.every)
            keep, add = cast_like(xp, hyper["keep"], param), cast_like(xp, hyper["add"], param)
            for slot, given in (("input_factor", "inputs"), ("output_factor", "outputs")):
                new = keep * state[slot] + add * _ranged(xp, state[given])
                slots[slot] = kept_unless(xp, due, new, state[slot])
            fisher = xp.expand_dims(slots["output_factor"], axis=1) * xp.expand_dims(slots["input_factor"], axis=0)
        rate = cast_like(xp, hyper["lr"] / bias_correction(xp, hyper["beta1"], step), param)
        return rate * exp_avg / (fisher + cast_like(xp, hyper["damping"], param)), slots
