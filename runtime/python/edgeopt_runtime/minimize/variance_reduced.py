"""Small steps along gradients of single batches, whose noise vanishes towards the minimum: SVRG and SAGA."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from edgeopt_runtime.errors import NonFiniteLossError
from edgeopt_runtime.minimize.descent import MinimizeResult, StopReason
from edgeopt_runtime.minimize.method import Settings
from edgeopt_runtime.minimize.objective import SessionObjective

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SAGA", "SVRG", "Stochastic"]


@dataclass(frozen=True)
class Stochastic(Settings, ABC):
    """Settings of a method that takes a step for each of the batches which it draws.

    Attributes:
        max_iter: Most rounds, after each of which the gradient over all batches is known.
        lr: The length of a step in gradients; below 1/L, or 1/(3 L), if no batch's gradient changes faster than L.
        inner_steps: Steps of a round; None for twice as many as there are batches.
        tolerance_grad: Stop when no component of the gradient over all batches is larger.
        seed: Decides which batches are drawn. None draws one.
    """

    max_iter: int = 50
    lr: float = 0.01
    inner_steps: int | None = None
    tolerance_grad: float = 1e-8
    seed: int | None = None

    graphs: ClassVar[tuple[str, ...]] = ("accumulate",)

    def __post_init__(self) -> None:
        self.require("max_iter", self.max_iter, self.max_iter >= 0, "at least 0")
        self.require("lr", self.lr, 0 < self.lr < math.inf, "positive")
        self.require("inner_steps", self.inner_steps, self.inner_steps is None or self.inner_steps >= 1, "at least 1")
        self.require("tolerance_grad", self.tolerance_grad, self.tolerance_grad >= 0, "at least 0")
        self.require("seed", self.seed, self.seed is None or self.seed >= 0, "at least 0, or None")

    @abstractmethod
    def start(self, objective: SessionObjective, x: NDArray[Any], gradient: NDArray[Any], known: Any) -> Any:
        """What the steps of a round go by, from the point and gradient where it begins and what the last round left."""

    @abstractmethod
    def estimate(
        self, objective: SessionObjective, x: NDArray[Any], place: int, known: Any
    ) -> tuple[NDArray[Any], Any]:
        """An estimate of the gradient from the batch at a place, and what the next steps go by."""

    def run(self, objective: SessionObjective) -> MinimizeResult:
        """Take all steps.

        Raises:
            NonFiniteLossError: The loss or a gradient is not finite.
        """
        draw = np.random.default_rng(self.seed)
        x, known, rounds = objective.start(), None, 0
        while True:
            here = objective.evaluate(x)
            if not here.finite:
                raise NonFiniteLossError(
                    f"The loss after {rounds} rounds is {here.loss}, or its gradient is not finite; the state is as it "
                    "was before. Use a smaller `lr`, and check the batches for NaN.",
                    {"loss": here.loss},
                )
            reached = float(np.abs(here.gradient).max(initial=0.0)) <= self.tolerance_grad
            if reached or rounds == self.max_iter:
                break
            known = self.start(objective, x, here.gradient, known)
            for place in draw.integers(objective.batches, size=self.inner_steps or 2 * objective.batches):
                gradient, known = self.estimate(objective, x, int(place), known)
                x = (x - self.lr * gradient).astype(x.dtype)
            rounds += 1
        objective.settle(x)
        reason: StopReason = "gradient" if reached else "max_iter"
        return MinimizeResult(
            loss=here.loss,
            gradient_norm=float(np.linalg.norm(here.gradient)),
            iterations=rounds,
            evaluations=objective.evaluations + math.ceil(objective.shares / objective.batches),
            hessian_vector_products=0,
            reason=reason,
        )


@dataclass(frozen=True)
class SVRG(Stochastic):
    """Stochastic variance reduced gradient (R. Johnson, T. Zhang, NIPS 2013, procedure SVRG with option I).

    A round begins at w̃ with the gradient of all batches there. Its steps, for a batch i drawn each time, are

        w ← w - lr (∇fᵢ(w) - ∇fᵢ(w̃) + ∇f(w̃))

    whose mean is the gradient, and whose noise vanishes as w and w̃ approach the minimum. A step costs two gradients of
    its batch, a round one of all.
    """

    def start(self, objective: SessionObjective, x: NDArray[Any], gradient: NDArray[Any], known: Any) -> Any:
        """The point and its gradient."""
        return x, gradient

    def estimate(
        self, objective: SessionObjective, x: NDArray[Any], place: int, known: Any
    ) -> tuple[NDArray[Any], Any]:
        """The batch's gradient, moved by what is known of its noise."""
        snapshot, mean = known
        return objective.share(x, place) - objective.share(snapshot, place) + mean, known


@dataclass(frozen=True)
class SAGA(Stochastic):
    """SAGA (A. Defazio, F. Bach, S. Lacoste-Julien, NIPS 2014), for smooth losses.

    For each of n batches the last gradient gᵢ is kept. A step, for a batch i drawn each time, is

        w ← w - lr (∇fᵢ(w) - gᵢ + the mean of all g),  then gᵢ ← ∇fᵢ(w) at the w of before

    It costs one gradient of its batch, but the memory of n copies of the parameters; the gᵢ begin as gradients at the
    start.
    """

    def start(self, objective: SessionObjective, x: NDArray[Any], gradient: NDArray[Any], known: Any) -> Any:
        """The gradients of all batches, and their mean."""
        if known is not None:
            return known
        table = [objective.share(x, place) for place in range(objective.batches)]
        return table, np.mean(table, axis=0)

    def estimate(
        self, objective: SessionObjective, x: NDArray[Any], place: int, known: Any
    ) -> tuple[NDArray[Any], Any]:
        """The batch's gradient, moved by the difference that its last one had from the mean."""
        table, mean = known
        new, old = objective.share(x, place), table[place]
        table[place] = new
        return new - old + mean, (table, mean + (new - old) / len(table))
