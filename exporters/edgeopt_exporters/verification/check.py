"""The graphs of a bundle and the model side by side, at one size."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeopt.bundle import Bundle
from edgeopt.errors import ExportDifferenceError
from edgeopt.losses import Loss
from edgeopt.training import ForwardModel
from edgeopt.training.examining.own_losses import with_own_losses
from edgeopt.training.graphs.loss_graph import loss_graph
from edgeopt.training.names import accumulated_weight, accumulator_name
from edgeopt.training.objective import resolve_objective
from edgeopt_exporters.verification.comparing import GRADIENTS, OUTPUTS, Difference, compare
from edgeopt_exporters.verification.reference import Arrays, Reference, ReferenceFailed, Trained
from edgeopt_exporters.verification.running import GraphFailed, GraphRunner, quiet_session
from edgeopt_exporters.verification.targets import sizes_of, targets
from edgeopt_runtime.manifest import Manifest, OutputSpec

__all__ = ["Check", "Problem"]

# Of what differs, so many lines are shown.
_LISTED = 8
# Changes in the last digits: enough to see how they grow. The largest comes first, since it is mostly enough.
_NUDGES = (5.0, -3.0, 2.0)


@dataclass(frozen=True)
class Problem:
    """Why a size is not the model's.

    Attributes:
        reason: One line.
        of_model: Whether the model itself cannot be run at that size, or not be compared.
    """

    reason: str
    of_model: bool


@dataclass(frozen=True)
class Noise:
    """What rounding was seen to do to results of the model, by name and relative to them."""

    predictions: dict[str, float] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)
    states: dict[str, float] = field(default_factory=dict)
    gradients: dict[str, float] = field(default_factory=dict)


class Check:
    """The two graphs, ready to run, and the model beside them.

    Args:
        bundle: The graphs.
        forward: What they were composed of.
        loss: What the bundle minimises.
        output: The output that it reads; the first by default.
        asked: The parameters that should train. Those that the bundle leaves alone must have no gradient.
        reference: The model.

    Raises:
        ExportDifferenceError: ONNX Runtime refuses a graph.
    """

    def __init__(
        self,
        bundle: Bundle,
        forward: ForwardModel,
        loss: Loss,
        output: str | None,
        asked: Collection[str],
        reference: Reference,
    ) -> None:
        self._bundle, self._reference = bundle, reference
        manifest = bundle.manifest
        forward = with_own_losses(forward, loss)
        outputs = forward.train.specs(forward.train.outputs)
        in_training = (OutputSpec(spec.name, spec.dtype, spec.shape) for spec in outputs.values())
        self._outputs = (*manifest.outputs, *in_training)
        self._inputs = [spec for spec in manifest.inputs if spec.kind == "model"]
        # The labels of a loss that the model computes itself are among its examples.
        labels = forward.train.specs([name for name in forward.train.inputs if name in forward.labels])
        self._labels = tuple(labels)
        self._targets = [spec for spec in manifest.inputs if spec.kind == "loss" and spec.name not in labels]
        objective = resolve_objective(loss, output or forward.default_output, outputs, labels)
        self._read = objective.outputs
        self._loss = quiet_session(loss_graph(objective, outputs))
        self._accumulators = _accumulators(manifest)
        self._asked = (*self._accumulators, *(name for name in asked if name not in self._accumulators))
        codes = {part for entry in manifest.encoded for part in entry.parts}
        stored = (spec for spec in (*manifest.changing, *manifest.constants) if spec.name not in codes)
        models = [bundle.state[spec.name] for spec in stored if spec.role in ("parameter", "buffer")]
        self._of_state = max(
            (float(np.finfo(array.dtype).eps) for array in models if array.dtype.kind == "f"),
            default=float(np.finfo(np.float32).eps),
        )
        try:
            self._runners = {name: GraphRunner(bundle, name) for name in ("predict", "accumulate")}
        except GraphFailed as error:
            raise _not_run(error) from error
        self._noise = Noise()
        self._first = {name: array for name, array in reference.state.items() if name in bundle.state}
        # Most of the state is the same on both sides, before and after, and need not be looked at each time.
        of_bundle = self._runners["accumulate"].first
        self._unlike = [name for name, array in self._first.items() if not np.array_equal(array, of_bundle(name))]

    def compare(self, sizes: Mapping[str, int]) -> None:
        """Compare at some sizes; those that are not named are the examples'.

        Raises:
            ExportDifferenceError: Something differs, or ONNX Runtime does not run a graph.
            ReferenceFailed: The model cannot be run, or draws random numbers that cannot be repeated.
        """
        inputs = self._reference.inputs(sizes)
        # What rounding does to the model is much the same at any size, unless the examples are a point of their own.
        noise = Noise() if any(map(_is_constant, inputs.values())) else self._noise
        try:
            found = self._differences(inputs, noise)
            if found and all(difference.unstable for _, difference in found):
                # Nothing can be compared here: zeros in front of a BatchNorm leave it rounding to normalise.
                found = self._differences(_beside(inputs), Noise())
        except GraphFailed as error:
            raise _not_run(error) from error
        if found:
            only_gradients = all(kind == "gradient" for kind, _ in found)
            raise _error(found, _AT_A_KINK if only_gradients and self._agrees_beside(inputs) else _ADVICE)

    def _agrees_beside(self, inputs: Arrays) -> bool:
        """Whether the gradients are the model's at inputs nearby, where no two numbers are equal."""
        try:
            return not self._differences(_beside(inputs), Noise())
        except (GraphFailed, ReferenceFailed):
            return False

    def _differences(self, inputs: Arrays, noise: Noise) -> list[tuple[str, Difference]]:
        """Everything that differs, each with its kind; gradients only where nothing else does."""
        found = [("prediction", difference) for difference in self._predict(inputs, noise)]
        if not found:
            of_training, of_gradients = self._train(inputs, noise)
            found = [("training", difference) for difference in of_training]
            found = found or [("gradient", difference) for difference in of_gradients]
        return found

    def problem_at(self, sizes: Mapping[str, int]) -> Problem | None:
        """Why the graphs are not the model at some sizes; None if they are."""
        said = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        try:
            self.compare(sizes)
        except ReferenceFailed as error:
            return Problem(f"at {said} the model itself fails: {error}", of_model=True)
        except ExportDifferenceError as error:
            return Problem(f"at {said} {error.differences[0]}", of_model=False)
        return None

    def _predict(self, inputs: Arrays, noise: Noise) -> list[Difference]:
        expected = self._reference.predict(inputs)
        found = self._runners["predict"].run(inputs).results
        again = (self._reference.predict(inputs, nudge * self._epsilon) for nudge in _NUDGES)
        return compare(expected, found, OUTPUTS, self._epsilon, again, noise.predictions)

    def _train(self, inputs: Arrays, noise: Noise) -> tuple[list[Difference], list[Difference]]:
        """The differences in loss and state, and in gradients, after a training pass."""
        batch: dict[str, NDArray[Any]] = dict(inputs)
        loss: dict[str, NDArray[Any]] = {}

        def cotangents(outputs: Arrays) -> Arrays:
            sizes = {**sizes_of(self._inputs, inputs), **sizes_of(self._outputs, outputs)}
            for tried in targets(self._targets, sizes):
                feeds = {
                    **{f"output.{name}": outputs[name] for name in self._read},
                    **{f"target.{name}": inputs[name] for name in self._labels},
                    **{f"target.{name}": array for name, array in tried.items()},
                }
                read = {port.name for port in self._loss.get_inputs()}
                loss["loss"], total, *found = self._loss.run(
                    None, {name: array for name, array in feeds.items() if name in read}
                )
                batch.update(tried)
                if np.isfinite(total):
                    break
            return dict(zip(self._read, found, strict=True))

        expected = self._reference.train(inputs, cotangents, self._asked)
        runner = self._runners["accumulate"]
        ran = runner.run(batch)
        moved = {name: self._first[name] for name in (*self._unlike, *ran.state) if name in self._first}
        of_model = {**moved, **{name: array for name, array in expected.state.items() if name in self._bundle.state}}
        state = {name: ran.state[name] if name in ran.state else runner.first(name) for name in of_model}
        gradients = {
            name: sum((ran.state[each] for each in self._accumulators.get(name, ())), start=np.zeros_like(gradient))
            for name, gradient in expected.gradients.items()
        }

        computed, epsilon = dict(loss), self._epsilon

        @cache
        def again(nudge: float) -> tuple[Trained, Arrays]:
            """And the loss that `cotangents` computes on the way."""
            again = self._reference.train(inputs, cotangents, self._asked, nudge * epsilon, of_model.keys())
            return again, dict(loss)

        losses = (again(nudge)[1] for nudge in _NUDGES)
        states = (again(nudge)[0].state for nudge in _NUDGES)
        of_gradients = (again(nudge)[0].gradients for nudge in _NUDGES)
        return (
            [
                *compare(computed, ran.results, OUTPUTS, epsilon, losses, noise.losses),
                *compare(of_model, state, OUTPUTS, epsilon, states, noise.states),
            ],
            compare(expected.gradients, gradients, GRADIENTS, epsilon, of_gradients, noise.gradients),
        )

    @property
    def _epsilon(self) -> float:
        """The spacing of the coarsest type that the model keeps its state in, or computes in."""
        return max(self._of_state, self._reference.epsilon)


_ADVICE = (
    "That is a fault of the export, or of the exporter that it builds on: please report it. Saying the part of the "
    "model that leads there in another way may help; check=False exports what there is."
)
_AT_A_KINK = (
    "At inputs nearby they agree: the example inputs are a point where the derivative is a matter of choice, such as "
    "equal elements that topk or sort puts in an order of its own. Give examples like real data, without such ties; "
    "check=False exports what there is."
)
_WHAT = {
    "prediction": "the output {!r} of predict",
    "training": "{!r} after one training pass",
    "gradient": "the gradient of {!r}",
}


def _accumulators(manifest: Manifest) -> dict[str, list[str]]:
    """The accumulators of each parameter's gradient; several, where losses are divided by different weights."""
    names = {spec.name for spec in manifest.accumulators}
    shares = list(takewhile(lambda share: accumulated_weight(share) in names, count()))
    found: dict[str, list[str]] = {}
    for spec in manifest.accumulators:
        if spec.parameter is not None and spec.name in [accumulator_name(spec.parameter, share) for share in shares]:
            found.setdefault(spec.parameter, []).append(spec.name)
    return found


def _not_run(error: GraphFailed) -> ExportDifferenceError:
    line = f"ONNX Runtime does not run the exported graphs: {_first_line(error)}"
    return ExportDifferenceError(f"{line}\n{_ADVICE}", [line])


def _error(found: Sequence[tuple[str, Difference]], advice: str) -> ExportDifferenceError:
    lines = [f"{_WHAT[kind].format(difference.name)} {difference.text}" for kind, difference in found]
    shown = "".join(f"\n  - {line}" for line in lines[:_LISTED])
    more = f"\n  and {len(lines) - _LISTED} more" if len(lines) > _LISTED else ""
    return ExportDifferenceError(
        f"The exported graphs do not compute what the model computes on the example inputs:{shown}{more}\n{advice}",
        lines,
    )


def _is_constant(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" and bool((array == array.flat[0]).all() if array.size > 1 else False)


def _beside(inputs: Arrays) -> dict[str, NDArray[Any]]:
    """Inputs nearby whose numbers all differ; where there is one number only, such between zero and one."""
    random = np.random.default_rng(0)

    def moved(array: NDArray[Any]) -> NDArray[Any]:
        if array.size == 1 or _is_constant(array):
            return random.uniform(0.0, 1.0, array.shape).astype(array.dtype)
        near = array * (1.0 + 1e-2 * random.standard_normal(array.shape))
        return np.asarray(near + 1e-3 * random.standard_normal(array.shape)).astype(array.dtype)

    return {name: moved(array) if array.dtype.kind == "f" else array for name, array in inputs.items()}


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:300]
