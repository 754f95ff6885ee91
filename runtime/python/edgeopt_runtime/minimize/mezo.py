"""MeZO: descent without gradients, in the memory of evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar

import numpy as np

from edgeopt_runtime.batch import Batch, each_batch
from edgeopt_runtime.engine import Engine
from edgeopt_runtime.errors import BatchError, MinimizeError, NonFiniteLossError, StateError
from edgeopt_runtime.minimize.descent import MinimizeResult
from edgeopt_runtime.minimize.method import Settings
from edgeopt_runtime.minimize.objective import trainable

__all__ = ["MeZO", "walk"]


@dataclass(frozen=True)
class MeZO(Settings):
    """Simultaneous perturbation with directions that are drawn again instead of kept.

    For a direction z of independent standard normal numbers:

        slope = (L(w + epsilon z) - L(w - epsilon z)) / (2 epsilon);    w ← w - lr slope z

    with the mean of slope z over several directions. S. Malladi et al., Fine-Tuning Language Models with Just Forward
    Passes, NeurIPS 2023, arXiv:2305.17333, algorithm 1; the defaults are those for large language models. It differs
    in that the weights are kept once, to be put back after an error, and that L is the mean over all batches of a
    call.

    Attributes:
        max_iter: Steps.
        lr: Their rate. It has to be smaller than that of gradient descent, the more the more parameters count: models
            of some thousand parameters take 1e-3, say.
        epsilon: How far the weights are moved to find a slope.
        directions: Directions of a step.
        seed: Decides the directions; a call that goes on from another needs another one. None draws one.
    """

    max_iter: int = 1000
    lr: float = 1e-6
    epsilon: float = 1e-3
    directions: int = 1
    seed: int | None = None

    graphs: ClassVar[tuple[str, ...]] = ("evaluate",)

    def __post_init__(self) -> None:
        self.require("max_iter", self.max_iter, self.max_iter >= 0, "at least 0")
        self.require("lr", self.lr, 0 < self.lr < math.inf, "positive")
        self.require("epsilon", self.epsilon, 0 < self.epsilon < math.inf, "positive")
        self.require("directions", self.directions, self.directions >= 1, "at least 1")
        self.require("seed", self.seed, self.seed is None or self.seed >= 0, "at least 0, or None")


def walk(engine: Engine, batches: Batch | Iterable[Batch], settings: MeZO) -> MinimizeResult:
    """Take all steps.

    Raises:
        NonFiniteLossError: The loss is not finite.
        BatchError: A batch does not fit, or there is none.
        MinimizeError: A trainable parameter is bfloat16.
        StateError: Gradients are accumulated that an update still has to use.
    """
    # Weights that overflow have a loss that says so.
    with np.errstate(over="ignore", invalid="ignore"):
        return _walk(engine, batches, settings)


def _walk(engine: Engine, batches: Batch | Iterable[Batch], settings: MeZO) -> MinimizeResult:
    seed = np.random.SeedSequence().entropy if settings.seed is None else settings.seed
    with _Weights(engine, batches) as weights:
        for iteration in range(settings.max_iter):
            keys = [(seed, iteration, count) for count in range(settings.directions)]
            slopes = [weights.slope(key, settings.epsilon) for key in keys]
            for key, slope in zip(keys, slopes, strict=True):
                weights.move(key, -settings.lr * slope / settings.directions)
        loss = weights.loss()
    return MinimizeResult(
        loss=loss,
        gradient_norm=math.nan,
        iterations=settings.max_iter,
        evaluations=weights.evaluations,
        hessian_vector_products=0,
        reason="max_iter",
    )


class _Weights:
    """A session's trainable parameters in their place, and the loss of evaluation over some batches, as a context.

    The parameters are put back when an error leaves the context.
    """

    def __init__(self, engine: Engine, batches: Batch | Iterable[Batch]) -> None:
        self._program, read = engine.program("evaluate")
        if engine.pending:
            raise StateError("Gradients are accumulated for an update; call `apply` before `minimize`.")
        self._engine = engine
        reports = engine.manifest.signatures.get("summary", engine.signature("evaluate"))
        if not any(port.kind == "metric" and port.name == "loss" for port in reports.outputs):
            raise MinimizeError("The bundle's evaluate graph gives no loss.")
        self._batches = [read(batch) for batch in each_batch(batches)]
        if not self._batches:
            raise BatchError("There is no batch to minimise the loss over.")
        self._arrays = [engine.state.writable(part.parameter) for part in trainable(engine)]
        self._kept = [array.copy() for array in self._arrays]
        self.evaluations = 0

    def __enter__(self) -> _Weights:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for array, kept in zip(self._arrays, self._kept, strict=True):
                array[...] = kept
        elif self.evaluations:
            # A model that is random in evaluation has drawn the same numbers each time, and draws others from now on.
            self._program.commit()

    def move(self, key: Sequence[object], scale: float) -> None:
        """Add a multiple of a direction, which is drawn from its key, one parameter after the other."""
        draw = np.random.default_rng(key)  # type: ignore[arg-type]  # a sequence of integers
        for array in self._arrays:
            z = draw.standard_normal(array.shape, np.float64 if array.dtype == np.float64 else np.float32)
            array[...] = array + scale * z

    def slope(self, key: Sequence[object], epsilon: float) -> float:
        """That of the loss along a direction, by central differences; the parameters end where they were."""
        self.move(key, epsilon)
        above = self.loss()
        self.move(key, -2 * epsilon)
        below = self.loss()
        self.move(key, epsilon)
        return (above - below) / (2 * epsilon)

    def loss(self) -> float:
        """The mean over all batches."""
        self.evaluations += 1
        totals = self._engine.totals("evaluate")
        for batch in self._batches:
            totals.add(self._program, self._program.run(batch))
        loss = float(totals.result()["loss"])
        if not (math.isfinite(loss) and all(np.isfinite(array).all() for array in self._arrays)):
            raise NonFiniteLossError(
                f"The loss is {loss} after {self.evaluations - 1} others, or a weight is not finite; the state is as "
                "it was before. Use a smaller `lr`, and check the batches for NaN.",
                {"loss": loss},
            )
        return loss
