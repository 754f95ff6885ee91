"""`TrainingSession`: a bundle that trains."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from edgeopt_runtime.adapters import read_adapters, write_adapters
from edgeopt_runtime.archive import BundleContents, read_bundle, write_bundle
from edgeopt_runtime.atomic import replace_file
from edgeopt_runtime.batch import Batch, each_batch
from edgeopt_runtime.calls import answered, batches_only, no_attribute, one_batch
from edgeopt_runtime.constants import ConstantPlaces
from edgeopt_runtime.engine import Engine, OnNonFinite
from edgeopt_runtime.errors import BatchError, ForeignBundleError, HyperparameterError, NonFiniteLossError, StateError
from edgeopt_runtime.evaluation import Totals
from edgeopt_runtime.fit import Batches, Callback, History, fit
from edgeopt_runtime.kernels import KernelChoice, Kernels, find_library
from edgeopt_runtime.manifest import InputSpec, Manifest
from edgeopt_runtime.onnx_wire import bake
from edgeopt_runtime.providers import Options, Provider, listed_options, listed_providers
from edgeopt_runtime.transfer import WeightReport, by_own_name
from edgeopt_runtime.weight_sources import Which, fitting, weights_of, write_weights
from edgeopt_runtime.weights import with_aliases

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeopt_runtime.minimize import MinimizeResult

__all__ = ["TrainingSession"]

# Which weights are meant where an optimizer evaluates others than it trains.
View: TypeAlias = Literal["trained", "evaluated"]

# What sessions of other libraries have, and what to use here.
_MODES = "there are no modes: `step` trains, `evaluate` and `predict` do not"
_STEP = "`step` does all of it: forward, loss, backward and update"
_WEIGHTS = "`parameters()` and `buffers()` give the weights, `load_weights` takes them"
_DEVICE = 'the device is chosen once: `TrainingSession.load(path, providers="CUDAExecutionProvider")`'
INSTEAD = {
    **dict.fromkeys(("train", "eval", "train_mode", "eval_mode"), _MODES),
    **dict.fromkeys(("zero_grad", "backward", "forward", "optimizer", "train_step", "train_on_batch"), _STEP),
    **dict.fromkeys(("state_dict", "load_state_dict", "get_weights", "set_weights", "weights"), _WEIGHTS),
    **dict.fromkeys(("to", "cuda", "cpu"), _DEVICE),
    "run": "`predict` returns outputs, `step` trains",
    "compile": "loss and optimizer are in the bundle; `edgeopt.export(..., loss=..., optimizer=...)` chooses them",
    "summary": "`edgeopt inspect`, or `Bundle.load(path).inspect()`, shows what a bundle holds",
    "test_on_batch": "`evaluate(batch)` returns loss and metrics",
    "predict_on_batch": "`predict(batch)` returns outputs",
    "lr": "`hyperparameters` has the rate, and `set_hyper(lr=...)` sets it",
}
_CUT = "cut the data into batches: fit([(x[i : i + 32], y[i : i + 32]) for i in range(0, len(x), 32)])"
_RATE = "session.set_hyper(lr=...) sets the rate; the schedule is chosen when the bundle is exported"
INSTEAD_IN_FIT = {
    **dict.fromkeys(("x", "y", "batch_size", "steps_per_epoch"), _CUT),
    **dict.fromkeys(("validation_data", "validation_split", "val_dataloaders", "eval_dataset"), "give evaluate_on="),
    **dict.fromkeys(("train_dataloaders", "dataloader", "train_dataset", "data"), "give batches="),
    **dict.fromkeys(("num_epochs", "max_epochs", "num_train_epochs"), "give epochs="),
    **dict.fromkeys(("lr", "learning_rate", "optimizer", "loss"), _RATE),
    "verbose": "give progress=False to be quiet",
    "shuffle": "give a function that returns the batches of the next epoch in the order that is wanted",
}


class TrainingSession:
    """A training step, its state and everything else a bundle holds, ready to run on this device.

    Calls from several threads are carried out one after the other.

    Args:
        contents: The bundle, or where it is; its state is copied.
        providers: ONNX Runtime's execution providers in order of preference; None means the CPU. One alone need not
            stand in a list.
        provider_options: Options for each of ``providers``.
        threads: Threads within an operator; None lets ONNX Runtime choose.
        deterministic: Ask for kernels that give the same bits each time.
        on_nonfinite: What to do when a step's loss, the metric ``grad_norm`` or anything that the step would write
            (parameters, optimizer state, buffers) is infinite or NaN. ``"raise"`` raises `NonFiniteLossError` and
            leaves the state, counters included, as it was. ``"skip"`` leaves the state too, but returns the metrics;
            under this setting they hold ``skipped``, 1.0 or 0.0. It raises only where the state itself is not finite,
            since every step would be skipped then. ``"ignore"`` goes on.
        kernels: ``"auto"`` runs fused operations as native kernels on the CPU where the package ``edgeopt-native`` is
            installed and fits, ``"plain"`` as plain operators; `kernels` says what was chosen and why.
        constants: Where weights that do not train are. ``"initializers"`` makes them part of each graph that reads
            them, which ONNX Runtime prepares for its operators: faster, for a copy in each graph that is used.
            ``"inputs"`` keeps one copy for all. ``"auto"`` does for each what pays.

    Raises:
        BundleError: The bundle cannot be used.
        ProviderError: A provider is not available.
    """

    def __init__(
        self,
        contents: BundleContents | str | os.PathLike[str] | bytes,
        *,
        providers: Provider | Sequence[Provider] | None = None,
        provider_options: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        threads: int | None = None,
        deterministic: bool = False,
        on_nonfinite: OnNonFinite = "raise",
        kernels: KernelChoice = "auto",
        constants: ConstantPlaces = "auto",
    ) -> None:
        options = Options(listed_providers(providers), listed_options(provider_options), threads, deterministic)
        options = replace(options, library=find_library(kernels, options.cpu_only))
        if isinstance(contents, (str, os.PathLike, bytes)):
            contents = read_bundle(contents)
        elif not hasattr(contents, "manifest"):
            raise ForeignBundleError(
                f"A session takes a bundle or its path, not a {type(contents).__name__}; `edgeopt.export` makes a "
                "bundle of a model."
            )
        self._engine = Engine(contents, options, on_nonfinite, constants)
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"TrainingSession({self._engine.manifest.summary})"

    @classmethod
    def load(
        cls,
        source: BundleContents | str | os.PathLike[str] | bytes,
        *,
        providers: Provider | Sequence[Provider] | None = None,
        provider_options: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        threads: int | None = None,
        deterministic: bool = False,
        on_nonfinite: OnNonFinite = "raise",
        kernels: KernelChoice = "auto",
        constants: ConstantPlaces = "auto",
    ) -> TrainingSession:
        """Read a bundle from a folder, a packed file or the bytes of one; or take one that is in memory.

        The options are those of the class.

        Raises:
            BundleError: The bundle cannot be used.
            ProviderError: A provider is not available.
        """
        return cls(
            source,
            providers=providers,
            provider_options=provider_options,
            threads=threads,
            deterministic=deterministic,
            on_nonfinite=on_nonfinite,
            kernels=kernels,
            constants=constants,
        )

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute("TrainingSession", name, INSTEAD)

    @property
    def manifest(self) -> Manifest:
        """What the bundle says about itself, with the current hyperparameters as defaults."""
        return replace(self._engine.manifest, hyperparameters=self._engine.hyper.specs())

    @property
    def kernels(self) -> Kernels:
        """Which operations run as native kernels, and why others do not."""
        return self._engine.kernels()

    @property
    def signature(self) -> tuple[InputSpec, ...]:
        """Name, kind, dtype and shape of each array of a batch: the model's inputs, then those of the loss."""
        return self._engine.inputs

    @property
    def hyperparameters(self) -> dict[str, float]:
        """The current values by name."""
        return self._engine.hyper.values()

    def step(self, batch: Batch | Any, *others: Any) -> dict[str, float]:
        """One training step: forward, loss, backward, update.

        Args:
            batch: Arrays by input name, or in the order of `signature`. They are read in place, not copied, and must
                not change during the call.
            others: The second array and those after it, where they are given one by one: ``step(x, y)``.

        Returns:
            The metrics of the step, ``loss`` among them.

        Raises:
            BatchError: The batch does not fit, or nothing in it counts: every target is ignored.
            NonFiniteLossError: The loss or the new state is not finite; the state is as it was.
            ExecutionError: ONNX Runtime failed; the state is as it was.
        """
        return self._step(one_batch(batch, others), None)

    def _step(self, batch: Batch, totals: Totals | None) -> dict[str, float]:
        """A step whose sums are added to totals, too."""
        with self._lock:
            return self._engine.advance("step", batch, totals)

    def _totals(self) -> Totals | None:
        """What the sums of steps are added up in; None for a bundle whose steps give none."""
        with self._lock:
            return self._engine.totals("step") if self._engine.gives_sums("step") else None

    def accumulate(self, batch: Batch | Any, *others: Any) -> dict[str, float]:
        """Add the gradients of one microbatch to those accumulated; the parameters stay.

        A microbatch in which nothing counts, say of padding only, adds nothing, and has the loss 0. Raises what `step`
        raises otherwise.
        """
        with self._lock:
            metrics = self._engine.advance("accumulate", one_batch(batch, others))
            self._engine.pending = self._engine.pending or not metrics.get("skipped")
            return metrics

    def apply(self) -> dict[str, float]:
        """Update the parameters with the accumulated gradients, and start anew.

        The update equals that of one step on all the microbatches together. If it is refused, the accumulated
        gradients are dropped.

        Raises:
            StateError: Nothing has been accumulated, or nothing in it counts: every target is ignored.
            NonFiniteLossError: The gradient norm or the new state is not finite; the state is as it was.
            ExecutionError: ONNX Runtime failed; the state is as it was.
        """
        with self._lock:
            self._engine.program("apply")
            if not self._engine.pending:
                raise StateError("Nothing has been accumulated since the last update; call `accumulate` first.")
            try:
                metrics = self._engine.advance("apply", {})
            except (NonFiniteLossError, StateError):
                # What led to no update leads to none the next time either.
                self._engine.drop_accumulated()
                raise
            self._engine.drop_accumulated()
            return metrics

    def evaluate(self, batches: Batch | Iterable[Batch] | Any, *others: Any) -> dict[str, float]:
        """Loss and metrics without training.

        The state stays, but for the count of random numbers of a model that draws some in evaluation too.

        What batches count (samples, tokens, hits) is added up, and the metrics are made of the sums, so that the result
        does not depend on how the data is cut into batches. A metric may be an array, such as a confusion matrix.

        Args:
            batches: One batch (a mapping, or a list or tuple of arrays), or an iterable of batches.
            others: As in `step`, for one batch.

        Raises:
            BatchError: A batch does not fit, or there is none. Where nothing in them counts, the results are NaN, and a
                `UserWarning` says so.
        """
        with self._lock:
            program, read = self._engine.program("evaluate")
            totals = self._engine.totals("evaluate")
            for batch in each_batch(one_batch(batches, others)):
                arrays = read(batch)
                if all(array.size for array in arrays.values()):
                    totals.add(program, program.run(arrays))
                    program.commit()
                else:
                    totals.batches += 1
            if not totals.batches:
                raise BatchError("There is no batch to evaluate.")
            if not totals.counted:
                warnings.warn(
                    "Nothing in the batches to evaluate counts: they are empty, or every target is ignored. There is "
                    "no mean, so that the results are NaN.",
                    stacklevel=2,
                )
            return totals.result()

    def predict(self, inputs: Any, *others: Any) -> NDArray[Any] | dict[str, NDArray[Any]]:
        """The model's output, or its outputs by name if it has several.

        The state stays, but for the count of random numbers of a model that draws some in evaluation too (a VAE, or
        Monte Carlo dropout): of such a model each call draws others, and `reset_seed` starts again.

        Args:
            inputs: The model's inputs by name or in order, or the array itself if there is one. A mapping may hold
                the inputs of the loss besides.
            others: As in `step`.

        Raises:
            BatchError: The inputs do not fit.
            ExecutionError: ONNX Runtime failed.
        """
        with self._lock:
            program, read = self._engine.program("predict")
            outputs = program.predict(read(one_batch(inputs, others)))
            program.commit()
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    @answered(BatchError, INSTEAD_IN_FIT, needed={"batches": "[(x, y), ...]"})
    def fit(
        self,
        batches: Batches,
        *others: Any,
        epochs: int = 1,
        progress: bool = True,
        callbacks: Sequence[Callback] = (),
        evaluate_on: Batches | None = None,
    ) -> History:
        """Train for some epochs.

        Args:
            batches: An iterable of batches, or a function that returns the batches of the next epoch.
            others: Nothing; a data set in several arrays has to be cut into batches first.
            epochs: How often to go through them.
            progress: Show a line on stderr, if that is a terminal.
            callbacks: Called as ``callback(session, info)`` after each step and each epoch, see `FitInfo`. One that
                raises `StopTraining` ends the training.
            evaluate_on: Batches to evaluate after each epoch.

        Raises:
            BatchError: A batch does not fit, or an epoch has none.
            NonFiniteLossError: See `step`. Whatever exception ends the training, `KeyboardInterrupt` too, has the
                `History` until then as its ``history``.
        """
        batches_only(batches, others)
        return fit(self, batches, epochs=epochs, progress=progress, callbacks=callbacks, evaluate_on=evaluate_on)

    def minimize(self, batches: Batch | Iterable[Batch], method: str = "lbfgs", **options: Any) -> MinimizeResult:
        """Minimise the loss over the given batches by a method that decides itself how far to go.

        The bundle's optimizer and schedule have no part in it; their state stays. The loss is the mean over all
        batches together, in training mode; dropout draws the same masks at every evaluation, and goes on with new ones
        in the next call. Buffers, such as the running statistics of BatchNorm, end as after one pass over the batches
        at the final weights. Either all of this changes or, when an error is raised, nothing.

        Args:
            batches: One batch, or several; an iterable is read once, and its batches are kept during the call.
            method: ``lbfgs``, ``newton_cg`` (needs a bundle exported with ``hessian_vector=True``), ``ssbfgs`` or
                ``ssbroyden`` (a dense matrix: for up to some thousand parameters); ``svrg`` or ``saga`` (a step for
                each batch that is drawn); or ``mezo`` (no gradients: random directions, in the memory of evaluation,
                whose loss it takes instead, and without touching buffers).
            options: Settings of the method; `edgeopt_runtime.minimize.METHODS` names its class, which describes them.

        Raises:
            MinimizeError: There is no such method or option, or there are too many parameters for it.
            MissingGraphError: The bundle lacks a graph that the method needs.
            BatchError: A batch does not fit, or there is none.
            NonFiniteLossError: The loss is not finite at the start, or after a step without line search. A line
                search takes such points for too high and looks closer.
            StateError: Gradients are accumulated that no update has used yet.
            ExecutionError: ONNX Runtime failed.
        """
        from edgeopt_runtime.minimize import minimize

        with self._lock:
            return minimize(self._engine, batches, method, options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bundle with the current state and hyperparameters; a session loaded from it goes on bit for bit.

        Written as a folder if ``path`` is one, or if nothing is there and it does not end in ``.edgeopt``; else as one
        file. Gradients that are accumulated but not applied are kept too.

        Raises:
            StorageError: The disk is full or may not be written. The bundle that was there before is whole.
        """
        with self._lock:
            write_bundle(path, self.manifest, self._engine.graphs, self._engine.current(self._engine.pending))

    def export_inference(self, path: str | os.PathLike[str], *, merge: bool = True) -> None:
        """Write the trained model as a plain ONNX file that has only the model's inputs.

        Args:
            path: Of the file.
            merge: Whether adapters become part of the weights that they are for, so that the model is what it was in
                the beginning, with other numbers. Without it they stay beside them, as in training.

        A model that draws random numbers in evaluation draws the same ones at every run of the file, those that the
        next prediction of this session would draw; a `UserWarning` says so.

        Raises:
            MissingGraphError: The bundle has no graph for prediction.
            StorageError: The file cannot be written, or the model is larger than 2 GiB.
        """
        with self._lock:
            merging = merge and "merge" in self._engine.manifest.signatures
            signature = self._engine.signature("predict_merged" if merging else "predict")
            merged = self._engine.program("merge")[0].predict({}) if merging else {}
            tensors = {name: (array.dtype.name, array) for name, array in merged.items()}
            for port in signature.inputs:
                if port.kind == "state":
                    tensors[port.name] = (
                        self._engine.state.specs[port.name].dtype,
                        self._engine.state.current(port.name),
                    )
                elif port.kind == "hyper":
                    array = self._engine.hyper.arrays[port.name]
                    tensors[port.name] = array.dtype.name, array
            counts = {port.name for port in signature.outputs if port.kind == "state"}
            if counts:
                warnings.warn(
                    "The model draws random numbers in evaluation. A plain file cannot count them, so that this one "
                    "draws the same at every run; `reset_seed` before the export chooses others.",
                    stacklevel=2,
                )
            replace_file(Path(path), bake(self._engine.graphs[signature.file], tensors, counts))

    def parameters(self, view: View = "trained") -> dict[str, NDArray[Any]]:
        """Copies of the parameters by name; bfloat16 as ``uint16`` arrays of the same bits.

        A tensor that the model uses under several names (an embedding tied to the output layer) is there under each.

        Some optimizers evaluate other weights than they train: averages (`Averaged`, `ScheduleFreeAdamW` and the like),
        of which the weights themselves are only a part. What goes into another model, or is sent elsewhere to predict
        with, are the evaluated ones; the trained ones are for going on with training under the same optimizer state.

        Args:
            view: ``"trained"``, what the next step moves, or ``"evaluated"``, what `evaluate`, `predict` and
                `export_inference` compute with. For most optimizers both are the same.

        Raises:
            StateError: There is no such view.
            ExecutionError: ONNX Runtime failed.
        """
        if view not in ("trained", "evaluated"):
            raise StateError(f'`view` must be "trained" or "evaluated", not {view!r}.')
        with self._lock:
            return self._current("parameter", self._engine.viewed() if view == "evaluated" else {})

    def buffers(self) -> dict[str, NDArray[Any]]:
        """Copies of the buffers, such as running statistics, by name, as `parameters` gives those."""
        return self._current("buffer")

    def _current(self, role: str, instead: Mapping[str, NDArray[Any]] | None = None) -> dict[str, NDArray[Any]]:
        with self._lock:
            manifest, seen = self._engine.manifest, instead or {}
            arrays = {name: seen.get(name, array).copy() for name, array in self._engine.weights(role)}
            return with_aliases(manifest, arrays)

    def load_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Replace some parameters or buffers by copies of these arrays; optimizer state stays.

        Where the optimizer evaluates averages, these stay too, and with them what `predict` gives; a `UserWarning` says
        so, and ``reset(optimizer=True)`` lets them begin at the new weights.

        Args:
            parameters: Arrays by name; tensors of PyTorch are taken too, so that
                ``session.load_parameters(model.state_dict())`` does what it says. A tensor with several names may be
                given under any of them, and names may have the additions of wrappers (``module.``, ``_orig_mod.``).

        Raises:
            StateError: A name is not that of a parameter or buffer, or an array has another dtype or shape. Nothing is
                replaced then.
        """
        with self._lock:
            own = by_own_name(self._engine.manifest, parameters)
            self._engine.replace_weights(own)
            if any(name in self._engine.state.specs and not self._engine.state.is_finite(name) for name in own):
                self._engine.note_not_finite("`load_parameters` put it there")
            view = self._engine.manifest.signatures.get("view")
            averaged = [] if view is None else [port.tensor for port in view.outputs if port.tensor in own]
            if averaged:
                warnings.warn(
                    f"The optimizer evaluates another tensor than `{averaged[0]}`, an average or the like, which still "
                    "holds what it did: `predict` and `evaluate` hardly see the new weights. "
                    "`reset(optimizer=True)` lets it begin at them.",
                    stacklevel=2,
                )

    def save_weights(self, path: str | os.PathLike[str], which: Which = "all", *, view: View = "trained") -> None:
        """Write weights to a safetensors file, and nothing of optimizer or graphs.

        A tensor with several names is there under one; the metadata have the others, as those of
        `safetensors.torch.save_model`.

        Args:
            path: Of the file, which is replaced as a whole.
            which: ``"all"`` parameters and buffers, or ``"trainable"``: what training changes, which is the trainable
                parameters and the buffers that a step replaces, such as running statistics.
            view: As in `parameters`.

        Raises:
            StateError: There is no such ``which`` or view.
            StorageError: The file cannot be written; what was there before is whole.
        """
        with self._lock:
            write_weights(path, self._engine.manifest, {**self.parameters(view), **self.buffers()}, which)

    def load_weights(self, source: Any, which: Which = "all", *, strict: bool = True) -> WeightReport:
        """Take over weights in place. Optimizer state stays, of which `load_parameters` says more.

        Names may be any that a tensor has, with or without the additions of wrappers (``module.``, ``_orig_mod.``).
        Types of the same kind are converted where every value survives: float16 to float32 always, float64 if it does.

        Args:
            source: A safetensors file; arrays or tensors by name, such as a ``state_dict``; a module of PyTorch; a
                bundle or its path; or another session. Of the latter two the weights that they evaluate are taken.
            which: What must be there: ``"all"``, or ``"trainable"`` for what `save_weights` calls so.
            strict: Whether something missing, unexpected or of another shape or dtype is an error. Otherwise what fits
                is taken.

        Returns:
            What was taken, and all that did not fit.

        Raises:
            WeightsError: Something did not fit, and ``strict`` was asked for. All of it is listed, nothing is changed.
            StateError: The source cannot be read.
            BundleError: It is a bundle that cannot be used.
        """
        given = weights_of(source)
        with self._lock:
            own = {**self.parameters(), **self.buffers()}
            arrays, report = fitting(self._engine.manifest, own, given, which, strict=strict)
            self.load_parameters(arrays)
            return report

    def save_adapters(self, path: str | os.PathLike[str], *, view: View = "trained") -> None:
        """Write what trains beside the model, and nothing of the model itself, as PEFT does.

        The folder gets ``adapter_model.safetensors`` and ``adapter_config.json``; several adapters get a folder each in
        it. PEFT loads them where it has such adapters, `load_adapters` in any case. Parameters of the model that train
        as a whole besides, such as those of a new head, are there too, as `modules_to_save`.

        Args:
            path: The folder. Each file in it is replaced as a whole.
            view: As in `parameters`.

        Raises:
            AdapterError: The bundle has no adapters.
            StorageError: The files cannot be written; those that were there are whole.
        """
        with self._lock:
            write_adapters(path, self._engine.manifest, self.parameters(view))

    def load_adapters(self, path: str | os.PathLike[str]) -> None:
        """Take over adapters that `save_adapters` or PEFT wrote, in place: the next call computes with them.

        The optimizer's state stays that of the adapters before; ``reset(optimizer=True)`` begins it anew.

        Args:
            path: The folder, or the file of weights.

        Raises:
            AdapterError: The files are damaged, of another kind of adapter or for another model; it says what differs.
                The adapters are what they were.
        """
        with self._lock:
            self.load_parameters(read_adapters(path, self._engine.manifest))

    def state(self, *, constants: bool = True) -> dict[str, NDArray[Any]]:
        """Copies of all state tensors by name: parameters, buffers, optimizer state, counters, seed.

        Args:
            constants: Whether weights that never change are among them.
        """
        with self._lock:
            left = set() if constants else {spec.name for spec in self.manifest.constants}
            return {name: array.copy() for name, array in self._engine.current(False).items() if name not in left}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state` gave, of this session or another one of the same bundle; training goes on from there.

        Constants stay as they are.

        Raises:
            StateError: A tensor is missing, or has another dtype or shape. Nothing is changed then.
        """
        with self._lock:
            self._engine.restore(state)

    def set_hyper(self, name: str | None = None, value: float | None = None, /, **values: float) -> None:
        """Set hyperparameters, ``set_hyper("schedule.lr", 1e-4)`` or ``set_hyper(lr=1e-4)``.

        A name may be shortened to its last component if that is unambiguous. The values hold from the next step on
        and are saved with the bundle.

        Raises:
            HyperparameterError: A name is unknown or ambiguous, or a value is not a finite number or not in the range
                that the rule or schedule allows. Nothing is set then. What several numbers have to keep together, such
                as a warm-up that is shorter than the whole, is not checked.
        """
        if name is not None:
            if value is None:
                raise HyperparameterError(f"There is no value for `{name}`.")
            values = {**values, name: value}
        with self._lock:
            self._engine.hyper.set(values)

    def reset(
        self,
        *,
        schedule: bool = False,
        optimizer: bool = False,
        accumulated: bool = False,
        seed: int | None = None,
    ) -> None:
        """Begin some things anew; the parameters and buffers stay.

        Without arguments schedule, optimizer and accumulated gradients begin anew: a new run from the weights of now.
        To go back to other weights, keep those of `parameters` and hand them to `load_parameters` first.

        Args:
            schedule: The learning rate goes through its schedule from the beginning; the optimizer's averages, and the
                count of updates that corrects their bias, go on.
            optimizer: The optimizer's state, the count of updates included, is what it is before the first one. Slots
                that begin as copies of their parameter, such as averages, begin at the parameters of now. Where the
                schedule does not begin anew too, it goes on where it is.
            accumulated: Gradients that no update has used yet are dropped.
            seed: Random numbers begin anew from it, see `reset_seed`.

        Raises:
            MissingGraphError: The bundle is too old to know how its optimizer begins.
            StateError: It does not count updates, or has no seed.
            ExecutionError: ONNX Runtime failed; the state is as it was.
        """
        if not (schedule or optimizer or accumulated or seed is not None):
            schedule = optimizer = accumulated = True
        with self._lock:
            self._engine.reset(schedule=schedule, optimizer=optimizer, accumulated=accumulated, seed=seed)

    def reset_seed(self, seed: int) -> None:
        """Start the random numbers of dropout and the like anew from ``seed``.

        Raises:
            StateError: The bundle uses no random numbers, or the seed does not fit its type.
        """
        with self._lock:
            self._engine.state.reset_seed(seed)
