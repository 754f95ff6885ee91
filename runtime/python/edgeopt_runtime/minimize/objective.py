"""A session's loss as a function of one vector: all trainable parameters, one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from edgeopt_runtime.batch import Batch, each_batch
from edgeopt_runtime.engine import Engine
from edgeopt_runtime.errors import BatchError, MinimizeError, StateError
from edgeopt_runtime.evaluation import Totals, WeightedMeans
from edgeopt_runtime.state import StateBuffers
from edgeopt_runtime.tensors import is_finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeopt_runtime.program import Program

__all__ = ["Evaluation", "Objective", "Part", "SessionObjective", "trainable"]


class Evaluation(NamedTuple):
    """The loss at a point, its gradient there, and whether all else that a pass writes, buffers say, is finite."""

    loss: float
    gradient: NDArray[Any]
    sound: bool = True

    @property
    def finite(self) -> bool:
        """Whether these are numbers to go on with."""
        return self.sound and math.isfinite(self.loss) and bool(np.isfinite(self.gradient).all())


class Objective(Protocol):
    """What a method minimises.

    Attributes:
        size: Number of unknowns.
        evaluations: How often the loss was evaluated.
        products: How often the Hessian was applied.
    """

    size: int
    evaluations: int
    products: int

    def start(self) -> NDArray[Any]:
        """The point to start from."""

    def evaluate(self, x: NDArray[Any]) -> Evaluation:
        """Loss and gradient at a point."""

    def hessian_vector(self, x: NDArray[Any], vector: NDArray[Any]) -> NDArray[Any]:
        """The product of the Hessian at a point with a vector."""


class Part(NamedTuple):
    """Where one parameter is in the vector, and the accumulators of its gradient, each with its share."""

    parameter: str
    accumulators: tuple[tuple[int, str], ...]
    start: int
    stop: int
    shape: tuple[int, ...]


class SessionObjective:
    """The mean loss over some batches, as a context: what the graphs change is put back unless `settle` was reached.

    Each evaluation starts from the same buffers and the same count of random numbers, so dropout draws the same masks
    at every point: the loss is a function of the parameters alone.

    Attributes:
        shares: How often the gradient of a single batch was taken.

    Args:
        engine: The session's; nobody else may use it meanwhile.
        batches: One batch or several; they are kept.

    Raises:
        MissingGraphError: The bundle has no graph that gives gradients.
        StateError: Gradients are accumulated that an update still has to use.
        BatchError: A batch does not fit, or there is none.
        MinimizeError: A trainable parameter is bfloat16, which numpy cannot compute with.
    """

    def __init__(self, engine: Engine, batches: Batch | Iterable[Batch]) -> None:
        program, read = engine.program("accumulate")
        if engine.pending:
            raise StateError("Gradients are accumulated for an update; call `apply` before `minimize`.")
        self._engine, self._state, self._program = engine, engine.state, program
        self._batches = [read(batch) for batch in each_batch(batches)]
        if not self._batches:
            raise BatchError("There is no batch to minimise the loss over.")
        outputs = engine.signature("accumulate").outputs
        self._checks = [port.name for port in outputs if port.kind == "check"]
        self._parts = list(trainable(engine))
        self._weights = [share.weight for share in engine.manifest.shares]
        metrics = {port.name for port in outputs if port.kind == "metric"}
        if not self._weights or "loss" not in metrics:
            raise MinimizeError("The bundle's accumulate graph gives no loss, or no weight to divide its sum by.")
        self.size = self._parts[-1].stop if self._parts else 0
        self.evaluations = self.products = self.shares = 0
        self._totals = [math.nan for _ in self._weights]
        self._kept = {name: self._state.current(name).copy() for name in _changed(engine, self._parts)}
        self._evaluated: NDArray[Any] | None = None
        self._settled = False

    def __enter__(self) -> SessionObjective:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._settled:
            self._rewind()
            for part in self._parts:
                self._state.writable(part.parameter)[...] = self._kept[part.parameter]
        self._engine.drop_accumulated()

    def start(self) -> NDArray[Any]:
        """The parameters as they were, in the dtype of their gradients."""
        return self._joined([self._kept[part.parameter] for part in self._parts])

    def evaluate(self, x: NDArray[Any]) -> Evaluation:
        """Mean loss and gradient over all batches at ``x``, which is rounded to the dtype of the parameters."""
        self.evaluations += 1
        self._place(x)
        self._evaluated = x.copy()
        losses = self._losses()
        # A point beyond the range of the parameters' type is none.
        sound = all(self._in_range(part) for part in self._parts)
        for batch in self._batches:
            numbers = self._program.run(batch)
            losses.add(self._program, numbers)
            sound = sound and all(numbers[name] == 0 for name in self._checks)
            self._program.commit()
        self._totals = self._accumulated_weights()
        return Evaluation(losses.result()["loss"], self._mean(self._totals), sound)

    @property
    def batches(self) -> int:
        """The number of batches."""
        return len(self._batches)

    def share(self, x: NDArray[Any], place: int) -> NDArray[Any]:
        """The share of one batch in the gradient at ``x``, times the number of batches: their mean is the gradient.

        The batch sees the random numbers that it would see in a pass over all. `evaluate` comes first, which finds out
        what each batch weighs.
        """
        self._place(x)
        self._evaluated = None
        self.shares += 1
        for name in self._kept:
            if self._state.counts_draws(name):
                self._state.writable(name)[...] += place
        self._program.run(self._batches[place])
        self._program.commit()
        return self._mean([total / len(self._batches) for total in self._totals])

    def hessian_vector(self, x: NDArray[Any], vector: NDArray[Any]) -> NDArray[Any]:
        """The Hessian of the mean loss at ``x``, times a vector.

        Raises:
            MissingGraphError: The bundle has no graph for it.
        """
        program, _ = self._engine.program("hessian_vector")
        self.products += 1
        self._place(x)
        self._evaluated = None
        vectors = self._vectors(vector)
        for batch in self._batches:
            program.run({**batch, **vectors})
            program.commit()
        return self._mean(self._accumulated_weights())

    def settle(self, x: NDArray[Any]) -> None:
        """Leave the session at ``x``, with buffers and random numbers as after one pass over the batches there."""
        if self._evaluated is None or not np.array_equal(self._evaluated, x):
            self.evaluate(x)
        self._settled = True

    def _rewind(self) -> None:
        """Buffers and counters as they were at first, and nothing accumulated."""
        parameters = {part.parameter for part in self._parts}
        for name, array in self._kept.items():
            if name not in parameters:
                self._state.writable(name)[...] = array
        self._engine.drop_accumulated()

    def _place(self, x: NDArray[Any]) -> None:
        self._rewind()
        for part in self._parts:
            self._state.writable(part.parameter)[...] = x[part.start : part.stop].reshape(part.shape)

    def _in_range(self, part: Part) -> bool:
        return is_finite(self._state.current(part.parameter), self._state.specs[part.parameter].dtype)

    def _losses(self) -> Totals:
        """What the losses of the batches are added up in."""
        totals = self._engine.totals("accumulate")
        return _ByAccumulator(self._state, self._weights[0]) if isinstance(totals, WeightedMeans) else totals

    def _accumulated_weights(self) -> list[float]:
        """What the sums of each share are to be divided by; NaN if nothing counted, unless others did."""
        weights = [float(self._state.current(name)) for name in self._weights]
        return [weight or (math.inf if any(weights) else math.nan) for weight in weights]

    def _mean(self, weights: list[float]) -> NDArray[Any]:
        """The gradient: the sums of all shares, each over its weight."""
        means = []
        for part in self._parts:
            first, *others = (self._state.current(name) / weights[share] for share, name in part.accumulators)
            means.append(sum(others, start=first))
        return self._joined(means)

    def _joined(self, arrays: list[NDArray[Any]]) -> NDArray[Any]:
        dtypes = [self._state.current(part.accumulators[0][1]).dtype for part in self._parts]
        return np.concatenate([array.reshape(-1) for array in arrays], dtype=np.result_type(*dtypes))

    def _vectors(self, vector: NDArray[Any]) -> dict[str, NDArray[Any]]:
        places = {part.parameter: part for part in self._parts}
        vectors = {}
        for port in self._engine.signature("hessian_vector").inputs:
            if port.tensor is not None:
                part = places[port.tensor]
                piece = vector[part.start : part.stop].reshape(part.shape)
                vectors[port.name] = np.ascontiguousarray(piece, self._state.current(part.parameter).dtype)
        return vectors


class _ByAccumulator:
    """The mean of the batches' losses, where only the accumulated weight tells what each of them weighs.

    That is so in bundles of schema version 1.
    """

    counted = True

    def __init__(self, state: StateBuffers, weight: str) -> None:
        self._state, self._weight = state, weight
        self._total = self._before = 0.0
        self.batches = 0

    def add(self, program: Program, numbers: Mapping[str, float]) -> None:
        """Take in the loss of one batch, of a run that is not committed yet."""
        self.batches += 1
        after = float(self._state.next(self._weight))
        # A batch without weight has no mean.
        self._total += numbers["loss"] * (after - self._before) if after != self._before else 0.0
        self._before = after

    def result(self) -> dict[str, Any]:
        """The mean so far."""
        return {"loss": self._total / (self._before or math.nan)}


def trainable(engine: Engine) -> Iterable[Part]:
    """The trainable parameters in the order of the vector.

    Raises:
        MinimizeError: One is bfloat16, which numpy cannot compute with.
    """
    start, shares = 0, engine.manifest.shares
    for spec in engine.manifest.accumulators:
        # Those with a slot hold what an optimizer asked for beside the gradient.
        if spec.parameter is None or spec.slot is not None:
            continue
        if engine.state.specs[spec.parameter].dtype == "bfloat16":
            raise MinimizeError(f"The parameter `{spec.parameter}` is bfloat16; minimize needs float16, 32 or 64.")
        stop = start + math.prod(spec.shape)
        accumulators = tuple(
            (number, share.accumulators[spec.parameter])
            for number, share in enumerate(shares)
            if spec.parameter in share.accumulators
        )
        yield Part(spec.parameter, accumulators, start, stop, spec.shape)
        start = stop


def _changed(engine: Engine, parts: list[Part]) -> set[str]:
    """The state that minimising changes: the parameters, and the buffers and counters that a pass writes."""
    accumulators = {spec.name for spec in engine.manifest.memory if spec.role == "accumulator"}
    written = {part.parameter for part in parts}
    for name in ("accumulate", "hessian_vector"):
        if name in engine.manifest.signatures:
            outputs = engine.manifest.signatures[name].outputs
            written |= {port.tensor for port in outputs if port.tensor is not None}
    return written - accumulators
