"""The check behind every export: the finished graphs beside the model, at the examples' sizes and at others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeopt.bundle import Bundle
from edgeopt.errors import ExportDifferenceError
from edgeopt.losses import Loss
from edgeopt.lowering import uses_random_numbers
from edgeopt.training import ForwardModel, compose
from edgeopt.training.loss_graph import loss_graph
from edgeopt.training.names import accumulator_name
from edgeopt_exporters.verification.comparing import GRADIENTS, OUTPUTS, Difference, compare
from edgeopt_exporters.verification.quartile import with_quartiles
from edgeopt_exporters.verification.reference import Arrays, Reference, ReferenceFailed, Trained
from edgeopt_exporters.verification.running import GraphFailed, GraphRunner, quiet_session
from edgeopt_exporters.verification.targets import sizes_of, targets
from edgeopt_runtime.manifest import Decision, InputSpec, OutputSpec

__all__ = ["Verdict", "verify"]

T = TypeVar("T")

# Of what the model may have to say, so many names fit into a line.
_LISTED = 8
# Changes in the last digits: enough to see how they grow.
_NUDGES = (2.0, -3.0, 5.0)


@dataclass(frozen=True)
class Verdict:
    """What a check found.

    Attributes:
        decisions: What was compared, and what was not and why.
        unproven: Symbolic dimensions that the model, or the graphs, do not have as many sizes of, with the reason.
    """

    decisions: tuple[Decision, ...]
    unproven: Mapping[str, str]


def verify(bundle: Bundle, forward: ForwardModel, settings: Mapping[str, Any], reference: Reference) -> Verdict:
    """Compare a bundle with the model that it was made of.

    `predict` and `accumulate` run on ONNX Runtime: outputs, loss, buffers and parameters that the forward pass writes,
    and the gradient of every trainable parameter must equal the model's but for rounding; and again where every
    symbolic dimension has another size. Random numbers are replaced by the lower quartile of their distribution on both
    sides.

    Args:
        bundle: What was exported.
        forward: What it was composed of.
        settings: The other arguments of `compose`.
        reference: The model.

    Raises:
        ExportDifferenceError: Something differs at the examples' own sizes; it lists what.
    """
    checked = _without_randomness(bundle, forward, settings)
    written = {port.tensor for port in checked.manifest.signatures["accumulate"].outputs}
    reference = reference.with_frozen([name for name in forward.train.updated_buffers if name not in written])
    check = _Check(checked, settings["loss"], settings.get("output"), reference)
    unchecked = check.run({})
    unproven: dict[str, str] = {}
    sizes = reference.sizes
    if sizes and not unchecked:
        tried = {name: size + 1 for name, size in sizes.items()}
        if (reason := check.problem_at(tried)) is not None:
            unproven = dict.fromkeys(sizes, reason) if len(sizes) == 1 else {}
            for name in sizes if len(sizes) > 1 else ():
                if (alone := check.problem_at({name: sizes[name] + 1})) is not None:
                    unproven[name] = alone
            # Each is fine by itself: then it is their combination, and nothing is promised of any.
            unproven = unproven or dict.fromkeys(sizes, reason)
            tried = {name: size for name, size in tried.items() if name not in unproven}
        unchecked += check.notes
        proven = [_proof(name, sizes[name], tried[name]) for name in tried]
    else:
        proven = []
    return Verdict((*proven, *dict.fromkeys(unchecked)), unproven)


def _proof(name: str, size: int, other: int) -> Decision:
    return Decision(
        "symbolic", name, f"dimension {name!r} is symbolic: results equal the model's at {size} and {other}"
    )


def _without_randomness(bundle: Bundle, forward: ForwardModel, settings: Mapping[str, Any]) -> Bundle:
    """The bundle, or one with the same graphs that draw quartiles."""
    random = [uses_random_numbers(graph.model.graph) for graph in (forward.train, forward.evaluate)]
    if not any(random):
        return bundle
    fixed = replace(forward, train=with_quartiles(forward.train), evaluate=with_quartiles(forward.evaluate))
    return compose(fixed, **settings, signatures=("accumulate", "predict"))


class _Check:
    """The two graphs, ready to run, and the model beside them."""

    def __init__(self, bundle: Bundle, loss: Loss, output: str | None, reference: Reference) -> None:
        self._bundle, self._reference = bundle, reference
        manifest = bundle.manifest
        self._outputs = manifest.outputs
        self._prediction: OutputSpec = next(
            spec for spec in manifest.outputs if spec.name == (output or manifest.outputs[0].name)
        )
        self._inputs = [spec for spec in manifest.inputs if spec.kind == "model"]
        self._targets: list[InputSpec] = [spec for spec in manifest.inputs if spec.kind == "loss"]
        self._loss = quiet_session(loss_graph(loss, self._prediction, self._targets))
        self._wanted = {
            spec.parameter: spec.name
            for spec in manifest.accumulators
            if spec.parameter is not None and spec.name == accumulator_name(spec.parameter)
        }
        self._eps = max(
            (float(np.finfo(array.dtype).eps) for array in bundle.state.values() if array.dtype.kind == "f"),
            default=float(np.finfo(np.float32).eps),
        )
        self._runners = {name: GraphRunner(bundle, name) for name in ("predict", "accumulate")}
        self.notes: list[Decision] = []

    def run(self, sizes: Mapping[str, int]) -> list[Decision]:
        """Compare at some sizes; what could not be compared is returned.

        Raises:
            ExportDifferenceError: Something differs.
        """
        try:
            inputs = self._reference.inputs(sizes)
            self._predict(inputs)
            self._train(inputs)
        except ReferenceFailed as error:
            return [Decision("unchecked", "model", f"not compared with the model: {error}", warning=True)]
        except GraphFailed as error:
            line = f"ONNX Runtime does not run the exported graphs on the example inputs: {_first_line(error)}"
            raise ExportDifferenceError(
                f"{line}\nPlease report it; check=False exports what there is.", [line]
            ) from error
        return []

    def problem_at(self, sizes: Mapping[str, int]) -> str | None:
        """Why other sizes than the examples' are not the model's; None if they are."""
        try:
            inputs = self._reference.inputs(sizes)
            self._predict(inputs)
            self._train(inputs)
        except ReferenceFailed as error:
            return f"at {_said(sizes)} the model itself fails: {error}"
        except GraphFailed as error:
            return f"at {_said(sizes)} ONNX Runtime fails: {_first_line(error)}"
        except ExportDifferenceError as error:
            return f"at {_said(sizes)} {error.differences[0]}"
        return None

    def _predict(self, inputs: Arrays) -> None:
        expected = self._reference.predict(inputs)
        found = self._runners["predict"].run(inputs).results
        nudged = self._nudged(lambda nudge: self._reference.predict(inputs, nudge))
        _refuse("prediction", compare(expected, found, OUTPUTS, nudged))

    def _train(self, inputs: Arrays) -> None:
        batch: dict[str, NDArray[Any]] = dict(inputs)
        loss: dict[str, NDArray[Any]] = {}

        def cotangents(outputs: Arrays) -> Arrays:
            prediction = outputs[self._prediction.name]
            sizes = {**sizes_of(self._inputs, inputs), **sizes_of(self._outputs, outputs)}
            for tried in targets(self._targets, sizes):
                feeds = {"prediction": prediction, **{f"target.{name}": array for name, array in tried.items()}}
                read = {port.name for port in self._loss.get_inputs()}
                total, weight, cotangent = self._loss.run(
                    None, {name: array for name, array in feeds.items() if name in read}
                )
                batch.update(tried)
                with np.errstate(all="ignore"):
                    loss["loss"] = np.asarray(total / weight)
                if np.isfinite(total):
                    break
            return {self._prediction.name: cotangent}

        expected = self._reference.train(inputs, cotangents, self._wanted)
        ran = self._runners["accumulate"].run(batch)
        state = {
            name: ran.state.get(name, self._bundle.state[name]) for name in expected.state if name in self._bundle.state
        }
        gradients = {
            name: ran.state[accumulator] for name, accumulator in self._wanted.items() if accumulator in ran.state
        }

        def trained(nudge: float) -> Trained:
            return self._reference.train(inputs, cotangents, self._wanted, nudge)

        again = self._nudged(trained)
        computed = dict(loss)

        def losses() -> Iterator[Arrays]:
            for nudge in _NUDGES:
                trained(nudge * self._eps)
                yield dict(loss)

        _refuse(
            "training",
            [
                *compare(computed, ran.results, OUTPUTS, lambda: list(losses())),
                *compare(expected.state, state, OUTPUTS, lambda: [result.state for result in again()]),
            ],
        )
        _refuse(
            "gradient",
            compare(expected.gradients, gradients, GRADIENTS, lambda: [result.gradients for result in again()]),
        )

    def _nudged(self, results: Callable[[float], T]) -> Callable[[], list[T]]:
        return lambda: [results(nudge * self._eps) for nudge in _NUDGES]


_WHAT = {
    "prediction": "the output {!r} of predict",
    "training": "{!r} after one training pass",
    "gradient": "the gradient of {!r}",
}


def _refuse(what: str, differences: list[Difference]) -> None:
    if not differences:
        return
    lines = [f"{_WHAT[what].format(difference.name)} {difference.text}" for difference in differences]
    shown = "".join(f"\n  - {line}" for line in lines[:_LISTED])
    more = f"\n  and {len(lines) - _LISTED} more" if len(lines) > _LISTED else ""
    raise ExportDifferenceError(
        f"The exported graphs do not compute what the model computes on the example inputs:{shown}{more}\n"
        "That is a fault of the export, or of the exporter that it builds on: please report it. Rewriting the part of "
        "the model that leads there may help; check=False exports what there is.",
        lines,
    )


def _said(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:300]
