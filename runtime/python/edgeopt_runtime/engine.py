"""What a session does below its methods: graphs made at their first use, results committed or dropped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from edgeopt_runtime.archive import BundleContents
from edgeopt_runtime.batch import Batch, BatchReader
from edgeopt_runtime.errors import MissingGraphError, NonFiniteLossError, StateError
from edgeopt_runtime.hyper import Hyperparameters
from edgeopt_runtime.manifest import InputSpec, Signature
from edgeopt_runtime.program import Program
from edgeopt_runtime.providers import Options
from edgeopt_runtime.state import StateBuffers

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Engine", "OnNonFinite"]

OnNonFinite = Literal["raise", "skip", "ignore"]

# Metrics that must be finite for a result to count.
GUARDED = ("loss", "grad_norm")


class Engine:
    """The graphs of a bundle and the state they share.

    Attributes:
        manifest: The bundle's, as it was loaded.
        graphs: Serialized models by file name.
        state: The tensors.
        hyper: The hyperparameters.
        pending: Whether gradients are accumulated that no update has used yet.
        inputs: The arrays of a batch: the model's inputs, then those of the loss.

    Args:
        contents: The bundle; its state is copied.
        options: Settings of ONNX Runtime.
        on_nonfinite: See `TrainingSession`.
    """

    def __init__(self, contents: BundleContents, options: Options, on_nonfinite: OnNonFinite) -> None:
        if on_nonfinite not in ("raise", "skip", "ignore"):
            raise StateError(f'`on_nonfinite` must be "raise", "skip" or "ignore", not {on_nonfinite!r}.')
        self.manifest = contents.manifest
        self.graphs = dict(contents.graphs)
        self.state = StateBuffers(self.manifest, contents.state)
        self.hyper = Hyperparameters(self.manifest.hyperparameters)
        self.pending = any(spec.name in contents.state for spec in self.manifest.accumulators)
        self.inputs: tuple[InputSpec, ...] = tuple(sorted(self.manifest.inputs, key=lambda spec: spec.kind != "model"))
        self._options = options
        self._on_nonfinite = on_nonfinite
        self._programs: dict[str, tuple[Program, BatchReader]] = {}

    def signature(self, name: str) -> Signature:
        """The signature of a graph.

        Raises:
            MissingGraphError: The bundle has no such graph.
        """
        if name not in self.manifest.signatures:
            how = "with `edgeopt.export(..., hessian_vector=True)`" if name == "hessian_vector" else "with one"
            raise MissingGraphError(
                f"The bundle has no {name} graph; it has {', '.join(self.manifest.signatures)}. Export it {how}."
            )
        return self.manifest.signatures[name]

    def program(self, name: str) -> tuple[Program, BatchReader]:
        """A graph, ready to run, and the reader of its batches."""
        if name not in self._programs:
            signature = self.signature(name)
            used = {port.name for port in signature.inputs if port.kind == "batch"}
            graph = self.graphs[signature.file]
            program = Program(name, graph, self.manifest, self.state, self.hyper.arrays, self._options)
            reader = BatchReader(
                [spec for spec in self.inputs if spec.name in used], {spec.name for spec in self.inputs}
            )
            self._programs[name] = program, reader
        return self._programs[name]

    def advance(self, name: str, batch: Batch) -> dict[str, float]:
        """Run a graph that changes the state, and commit the result unless it is not finite.

        Raises:
            NonFiniteLossError: It is not, and the session is to raise.
        """
        program, read = self.program(name)
        metrics = program.run(read(batch))
        bad = [key for key in GUARDED if key in metrics and not math.isfinite(metrics[key])]
        if bad and self._on_nonfinite == "raise":
            raise NonFiniteLossError(
                f"`{bad[0]}` of this {name} is {metrics[bad[0]]}; the state is as it was before. Lower the learning "
                "rate, clip gradients, check the batch for NaN (and for a single sample, where a BatchNorm needs "
                'several), or load the session with on_nonfinite="skip".',
                metrics,
            )
        if not bad or self._on_nonfinite == "ignore":
            program.commit()
        if self._on_nonfinite == "skip":
            metrics["skipped"] = float(bool(bad))
        return metrics

    def drop_accumulated(self) -> None:
        """Set the accumulators to zero."""
        for spec in self.manifest.accumulators:
            self.state.current(spec.name).fill(0)
        self.pending = False

    def current(self, with_accumulators: bool) -> dict[str, NDArray[Any]]:
        """The state tensors by name, in the session's own memory."""
        specs = self.manifest.tensors
        if with_accumulators:
            specs = (*specs, *self.manifest.accumulators)
        return {spec.name: self.state.current(spec.name) for spec in specs}
