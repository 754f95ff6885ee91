"""What a session does below its methods: graphs made at their first use, results committed or dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edgeopt_runtime.archive import BundleContents
from edgeopt_runtime.batch import Batch, BatchReader
from edgeopt_runtime.constants import ConstantPlaces, check_places
from edgeopt_runtime.errors import BatchError, GraphError, MissingGraphError, NonFiniteLossError, StateError
from edgeopt_runtime.evaluation import Summary, Sums, Totals, WeightedMeans
from edgeopt_runtime.guard import Guard
from edgeopt_runtime.hyper import Hyperparameters
from edgeopt_runtime.kernels import Kernels
from edgeopt_runtime.manifest import InputSpec, Signature
from edgeopt_runtime.narrow import decoded, encoded
from edgeopt_runtime.onnx_wire import has_external_data, operators_of
from edgeopt_runtime.program import Program
from edgeopt_runtime.providers import Options
from edgeopt_runtime.schedule_watch import ScheduleWatch
from edgeopt_runtime.state import StateBuffers
from edgeopt_runtime.tensors import check_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Engine", "OnNonFinite"]

OnNonFinite = Literal["raise", "skip", "ignore"]


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
        contents: The bundle; its state stays as it is.
        options: Settings of ONNX Runtime.
        on_nonfinite: See `TrainingSession`.
        constants: See `TrainingSession`.
    """

    def __init__(
        self,
        contents: BundleContents,
        options: Options,
        on_nonfinite: OnNonFinite,
        constants: ConstantPlaces = "auto",
    ) -> None:
        check_places(constants)
        if on_nonfinite not in ("raise", "skip", "ignore"):
            raise StateError(f'`on_nonfinite` must be "raise", "skip" or "ignore", not {on_nonfinite!r}.')
        self.manifest = contents.manifest
        self.graphs = dict(contents.graphs)
        self.state = StateBuffers(self.manifest, contents.state)
        self.hyper = Hyperparameters(self.manifest.hyperparameters)
        self.pending = any(spec.name in contents.state for spec in self.manifest.accumulators)
        self.inputs: tuple[InputSpec, ...] = tuple(sorted(self.manifest.inputs, key=lambda spec: spec.kind != "model"))
        self._options = options
        self._constants = constants
        self._on_nonfinite = on_nonfinite
        self._not_finite_since: str | None = None
        self._schedule_watch = ScheduleWatch(self.manifest, self.state, self.hyper)
        self._guards: dict[str, Guard] = {}
        self._programs: dict[str, tuple[Program, BatchReader]] = {}
        self._summary: Summary | None = None
        # What was said about batches, whichever graph they are for.
        self._said: set[str] = set()

    def kernels(self) -> Kernels:
        """Which operations run as native kernels."""
        return self._options.library.report({file: operators_of(graph) for file, graph in self.graphs.items()})

    def signature(self, name: str) -> Signature:
        """The signature of a graph.

        Raises:
            MissingGraphError: The bundle has no such graph.
        """
        if name not in self.manifest.signatures:
            how = "with `edgeopt.export(..., hessian_vector=True)`" if name == "hessian_vector" else "with one"
            how = "again with this release" if name == "reset" else how
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
            program = Program(name, graph, self.manifest, self.state, self.hyper.arrays, self._options, self._constants)
            reader = BatchReader(
                [spec for spec in self.inputs if spec.name in used], {spec.name for spec in self.inputs}, self._said
            )
            self._programs[name] = program, reader
        return self._programs[name]

    def gives_sums(self, name: str) -> bool:
        """Whether a graph gives what `summary` makes numbers of; bundles of schema version 1 have none that does."""
        return any(port.kind == "sum" for port in self.signature(name).outputs)

    def totals(self, name: str) -> Totals:
        """What the losses and metrics of a graph's batches are added up in, empty.

        Raises:
            GraphError: The graph that makes numbers of sums is not what the manifest says.
        """
        if not self.gives_sums(name):
            return WeightedMeans(self.signature(name))
        if self._summary is None:
            signature = self.signature("summary")
            graph = self.graphs[signature.file]
            if has_external_data(graph):
                raise GraphError(f"{signature.file} has tensors in other files, which a bundle's graphs must not have.")
            self._summary = Summary(signature, self._options.open(signature.file, graph))
        return Sums(self._summary)

    def advance(self, name: str, batch: Batch, totals: Totals | None = None) -> dict[str, float]:
        """Run a graph that changes the state, and commit the result unless it is not finite, or counts nothing.

        What is committed is added to the totals, too.

        Raises:
            NonFiniteLossError: It is not finite, and the session is to raise; or no result can be, since the state is
                not finite itself.
            BatchError: There is nothing in the batch; or nothing of it counts in a step, and the session is to raise.
            StateError: The same for all that was accumulated.
        """
        program, read = self.program(name)
        arrays = read(batch)
        _refuse_empty(arrays)
        numbers = program.run(arrays)
        guard = self._guard(name)
        metrics = {key: numbers[key] for key in guard.metrics}
        empty = guard.counts_nothing(numbers)
        # A microbatch that weighs nothing adds nothing to the others.
        refused = empty and name != "accumulate"
        alarm = guard.alarms(numbers, counted=not empty)
        if alarm and not refused and self._on_nonfinite != "ignore":
            complaint = guard.complaint(numbers, not empty, self._not_finite_since or "the bundle was loaded")
            refused = complaint is not None
            # A batch that is skipped makes room for others; nothing makes room in a state that is not finite.
            if complaint is not None and (self._on_nonfinite == "raise" or guard.held() is not None):
                raise NonFiniteLossError(complaint, metrics)
        if refused and self._on_nonfinite == "raise":
            raise _nothing_counts(name)
        if not refused or self._on_nonfinite == "ignore":
            program.commit()
            if totals is not None:
                totals.add(program, numbers)
            self._schedule_watch.look(metrics)
            if alarm and self._on_nonfinite == "ignore" and self._not_finite_since is None:
                self.note_not_finite(f'this session went on under on_nonfinite="ignore"{self._place()}')
        if self._on_nonfinite == "skip":
            metrics["skipped"] = float(refused)
        return metrics

    def reset(self, *, schedule: bool, optimizer: bool, accumulated: bool, seed: int | None) -> None:
        """See `TrainingSession.reset`."""
        begun = self.program("reset")[0] if optimizer else None
        start, before = self.state.counter("start"), self.state.completed
        if (schedule or optimizer) and (start is None or before is None):
            raise StateError("The bundle does not count where its schedule began; export it with this release.")
        if begun is not None:
            begun.run({})
        if seed is not None:
            self.state.reset_seed(seed)
        if begun is not None:
            begun.commit()
        if start is not None and before is not None:
            # How far the schedule is stays, unless it is to begin anew.
            began, now = self.state.writable(start), self.state.completed or 0
            began[...] = now if schedule else now - (before - int(began))
        if schedule:
            self._schedule_watch.noticed = False
        if accumulated:
            self.drop_accumulated()

    def viewed(self) -> dict[str, NDArray[Any]]:
        """What stands for parameters in evaluation, where something else does; it shares the session's memory."""
        if "view" not in self.manifest.signatures:
            return {}
        program, _ = self.program("view")
        program.run({})
        # Written to the other buffers, and never committed.
        outputs = self.manifest.signatures["view"].outputs
        return {port.tensor: self.state.next(port.tensor) for port in outputs if port.tensor is not None}

    def _guard(self, name: str) -> Guard:
        if name not in self._guards:
            self._guards[name] = Guard(name, self.manifest, self.state)
        return self._guards[name]

    def replace_weights(self, arrays: Mapping[str, Any]) -> None:
        """Copy arrays into parameters and buffers, see `TrainingSession.load_parameters`.

        A graph that has one of them inside is made anew at its next use.
        """
        arrays = self._as_stored(arrays)
        self.state.replace(arrays, ("parameter", "buffer"))
        for name in [name for name, (program, _) in self._programs.items() if program.baked & arrays.keys()]:
            del self._programs[name]

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Copy arrays into everything that changes; see `TrainingSession.restore`."""
        names = [spec.name for spec in self.manifest.changing]
        missing = [name for name in names if name not in arrays]
        if missing:
            raise StateError(f"The state lacks `{missing[0]}`; give what `state()` of this bundle's session gave.")
        roles = ("parameter", "buffer", "optimizer", "counter", "seed")
        self.state.replace({name: arrays[name] for name in names}, roles)

    def _as_stored(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The same, with what is stored in fewer bits in those."""
        specs = {spec.name: spec for spec in self.manifest.tensors}
        stored = dict(arrays)
        for entry in self.manifest.encoded:
            if entry.name in stored:
                array = check_array(specs[entry.name], np.asarray(stored.pop(entry.name)))
                if not np.isfinite(array).all():
                    raise StateError(f"`{entry.name}` is stored in fewer bits, which cannot hold NaN or infinities.")
                stored |= encoded(entry, array, specs)
        return stored

    def weights(self, role: str) -> Iterator[tuple[str, NDArray[Any]]]:
        """The parameters, or the buffers, by name; those stored in fewer bits as the graphs decode them."""
        entries = {entry.name: entry for entry in self.manifest.encoded}
        parts = {part for entry in self.manifest.encoded for part in entry.parts}
        for spec in self.manifest.tensors:
            if spec.name in entries and spec.role == role:
                entry = entries[spec.name]
                yield spec.name, decoded(entry, spec, {part: self.state.current(part) for part in entry.parts})
            elif spec.role == role and spec.name not in parts:
                yield spec.name, self.state.current(spec.name)

    def note_not_finite(self, since: str) -> None:
        """Remember what may have brought something into the state that is not finite."""
        self._not_finite_since = since

    def _place(self) -> str:
        completed = self.state.completed
        return "" if completed is None else f" at update {completed}"

    def drop_accumulated(self) -> None:
        """Set the accumulators to zero."""
        for spec in self.manifest.accumulators:
            self.state.clear(spec.name)
        self.pending = False

    def current(self, with_accumulators: bool) -> dict[str, NDArray[Any]]:
        """The state tensors by name, in the session's own memory."""
        specs = (*self.manifest.changing, *self.manifest.constants)
        if with_accumulators:
            specs = (*specs, *self.manifest.accumulators)
        return {spec.name: self.state.current(spec.name) for spec in specs}


def _refuse_empty(arrays: Mapping[str, NDArray[Any]]) -> None:
    empty = next((name for name, array in arrays.items() if not array.size), None)
    if empty is not None:
        raise BatchError(
            f"The batch is empty: `{empty}` has shape {list(arrays[empty].shape)}, and there is nothing to learn from. "
            "Leave it out; at the end of the data, `while` and slices easily make one batch too many."
        )


def _nothing_counts(name: str) -> BatchError | StateError:
    if name == "step":
        return BatchError(
            "Nothing in this batch counts: every target is ignored or weighs nothing, so that its mean loss is 0/0. "
            "The state is as it was before. Leave such batches out, give them to `accumulate` together with others, or "
            'load the session with on_nonfinite="skip".'
        )
    return StateError(
        "Nothing that was accumulated since the last update counts: every target is ignored or weighs nothing, so that "
        "there is no mean gradient. The state is as it was before, and the accumulated zeros are dropped. Call `apply` "
        "after more microbatches."
    )
