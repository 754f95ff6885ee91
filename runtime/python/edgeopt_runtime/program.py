"""One graph of a bundle, bound to the buffers of the state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from edgeopt_runtime.constants import ConstantPlaces, bake_constants
from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.errors import ExecutionError, GraphError, UnsupportedVersionError
from edgeopt_runtime.manifest import Manifest, Signature
from edgeopt_runtime.onnx_wire import has_external_data
from edgeopt_runtime.providers import RUNTIME_ERRORS, Options
from edgeopt_runtime.state import StateBuffers, ort_value
from edgeopt_runtime.tensors import aligned_empty

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Program"]

# What a run may raise besides.
RUN_ERRORS: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, MemoryError)
# How ONNX Runtime's allocators, and those below them, say that memory is short.
OUT_OF_MEMORY = ("bad_alloc", "bad allocation", "allocate memory", "out of memory", "not enough memory")
# How its operators say that an index is too large.
OUT_OF_BOUNDS = ("out of data bounds", "out of bounds", "indices element", "index out of range")


class Program:
    """A graph that reads the state, a batch and the hyperparameters, and writes the next state and some numbers.

    On the CPU its inputs and outputs are bound once for each arrangement of the state's buffers (two for ``step``);
    a run then binds only the arrays of the batch. With other providers ONNX Runtime copies an input to the device when
    it is bound, so everything is bound anew in each run.

    Attributes:
        signature: What goes in and out.
        baked: The constants that are part of the graph here, as they were when it was made.

    Args:
        name: Name of the signature.
        graph: The serialized ONNX model.
        manifest: Describes the tensors and the signature.
        state: Holds the tensors.
        hyper: The hyperparameters by name, arrays of shape ``()`` whose memory the graph reads.
        options: Settings of ONNX Runtime.
        constants: Which constants become part of the graph.

    Raises:
        GraphError: The graph's inputs and outputs differ from the signature, or ONNX Runtime refuses it.
    """

    def __init__(
        self,
        name: str,
        graph: bytes,
        manifest: Manifest,
        state: StateBuffers,
        hyper: Mapping[str, NDArray[Any]],
        options: Options,
        constants: ConstantPlaces = "auto",
    ) -> None:
        self.signature = signature = manifest.signatures[name]
        self._file = signature.file
        self._state = state
        if has_external_data(graph):
            # ONNX Runtime would open whatever file the model names.
            raise GraphError(f"{signature.file} has tensors in other files, which a bundle's graphs must not have.")
        baked = bake_constants(graph, signature, state, constants, cpu_only=options.cpu_only)
        self.baked, self._constants = baked.names, baked.values
        self._session = options.open(signature.file, baked.graph, baked.settle)
        bound = replace(signature, inputs=tuple(port for port in signature.inputs if port.name not in baked.names))
        try:
            types = _check_graph(self._session, bound, manifest)
        except RUNTIME_ERRORS as error:
            # Names in the graph that are not UTF-8 end here.
            raise GraphError(f"{signature.file} cannot be examined: {error}.") from error
        batch = {port.name for port in signature.inputs if port.kind == "batch"}
        self._batch_dtypes = {spec.name: spec.dtype for spec in manifest.inputs if spec.name in batch}
        self._batch_dtypes.update(
            {port.name: state.specs[port.tensor].dtype for port in signature.inputs if port.tensor is not None}
        )
        self._reads = [port.name for port in bound.inputs if port.kind == "state"]
        shapes = {node.name: node.shape for node in self._session.get_outputs()}
        self._writes = [
            (port.name, port.tensor, _shape_written(shapes[port.name], state.specs[port.tensor].shape))
            for port in signature.outputs
            if port.tensor is not None
        ]
        self._results = [port.name for port in signature.outputs if port.kind in ("output", "merged")]
        self._hyper = [
            (port.name, ort_value(hyper[port.name], hyper[port.name].dtype.name))
            for port in signature.inputs
            if port.kind == "hyper"
        ]
        self._scalars = {
            port.name: aligned_empty((), DTYPES[types[port.name]].storage)
            for port in signature.outputs
            if port.kind in ("metric", "weight", "check")
        }
        self._sums = {
            port.name: aligned_empty(_fixed(shapes[port.name], port.name, signature), DTYPES[types[port.name]].storage)
            for port in signature.outputs
            if port.kind == "sum"
        }
        self._scalar_values = [
            (key, ort_value(array, types[key])) for key, array in (*self._scalars.items(), *self._sums.items())
        ]
        self._flips = state.mask(tensor for _, tensor, _ in self._writes)
        self._mask = self._flips | state.mask(self._reads)
        self._bindings: dict[int, onnxruntime.IOBinding] | None = {} if options.cpu_only else None
        self._moves = state.moves

    def run(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Run the graph on a checked batch and return its numbers; the state changes only with `commit`.

        Raises:
            ExecutionError: ONNX Runtime failed.
        """
        self._run(batch)
        return {name: array.item() for name, array in self._scalars.items()}

    @property
    def sums(self) -> Mapping[str, NDArray[Any]]:
        """What the last run gave to be added up over batches, until the next run."""
        return {**self._scalars, **self._sums}

    def predict(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Run the graph on a checked batch and return its arrays, copies of their own.

        Raises:
            ExecutionError: ONNX Runtime failed.
        """
        binding = self._run(batch)
        # What was bound first, state and numbers, comes first.
        arrays = binding.copy_outputs_to_cpu()[len(self._writes) + len(self._scalar_values) :]
        return dict(zip(self._results, arrays, strict=True))

    def commit(self) -> None:
        """Make what the last run wrote the state."""
        self._state.sides ^= self._flips

    def _run(self, batch: Mapping[str, NDArray[Any]]) -> onnxruntime.IOBinding:
        try:
            binding = self._binding()
            for name, dtype in self._batch_dtypes.items():
                if dtype == "bfloat16":
                    binding.bind_ortvalue_input(name, ort_value(batch[name], dtype))
                else:
                    binding.bind_cpu_input(name, batch[name])
            for name in self._results:
                # Bound anew each time: a binding keeps the array that ONNX Runtime allocated, whose shape is that of
                # the batch before.
                binding.bind_output(name)
            self._session.run_with_iobinding(binding)
            if self._bindings is None:
                binding.synchronize_outputs()
        except RUN_ERRORS as error:
            raise ExecutionError(
                f"ONNX Runtime failed while running {self._file}: {error}. The state is unchanged. "
                f"{_advice(error, batch)}"
            ) from error
        return binding

    def _binding(self) -> onnxruntime.IOBinding:
        key = self._state.sides & self._mask
        if self._bindings is None:
            return self._bind()
        if self._moves != self._state.moves:
            self._forget()
        if key not in self._bindings:
            binding = self._bind()
            if self._moves != self._state.moves:
                # It has made buffers to write to, in place of others that earlier bindings read.
                self._forget()
            self._bindings[key] = binding
        return self._bindings[key]

    def _forget(self) -> None:
        if self._bindings is not None:
            self._bindings.clear()
        self._moves = self._state.moves

    def _bind(self) -> onnxruntime.IOBinding:
        binding = self._session.io_binding()
        for name in self._reads:
            binding.bind_ortvalue_input(name, self._state.reading(name))
        for name, value in self._hyper:
            binding.bind_ortvalue_input(name, value)
        for name, tensor, shape in self._writes:
            binding.bind_ortvalue_output(name, self._state.writing(tensor, shape))
        for name, value in self._scalar_values:
            binding.bind_ortvalue_output(name, value)
        return binding


def _advice(error: Exception, batch: Mapping[str, NDArray[Any]]) -> str:
    """What to do about a failure, as far as its words say."""
    words = str(error).lower()
    if isinstance(error, MemoryError) or any(sign in words for sign in OUT_OF_MEMORY):
        return (
            "There is not enough memory. Take smaller batches, with `accumulate` for as many of them as one update "
            'needs; or export with recompute="auto", which keeps fewer activations.'
        )
    empty = [name for name, array in batch.items() if not array.size]
    if empty:
        return f"The input `{empty[0]}` is empty, which not every model can work with."
    if any(sign in words for sign in OUT_OF_BOUNDS) and any(array.dtype.kind in "iu" for array in batch.values()):
        return "An index in the batch, say a token, lies beyond the table that it is looked up in: check its values."
    return "Compare the shapes and values of the batch with those of the examples that the bundle was exported with."


def _check_graph(session: onnxruntime.InferenceSession, signature: Signature, manifest: Manifest) -> dict[str, str]:
    """Compare a graph with its signature; returns the dtype of each output."""
    specs = {spec.name: spec for spec in manifest.memory}
    described: dict[str, tuple[str, tuple[int | str, ...]]] = {
        **{spec.name: (spec.dtype, spec.shape) for spec in manifest.inputs},
        **{spec.name: (spec.dtype, spec.shape) for spec in manifest.memory},
        **{spec.name: (spec.dtype, ()) for spec in manifest.hyperparameters},
    }
    described.update({port.name: described[port.tensor] for port in signature.inputs if port.tensor is not None})
    inputs = {node.name: node for node in session.get_inputs()}
    outputs = {node.name: node for node in session.get_outputs()}
    _check_names(signature.file, "inputs", {port.name for port in signature.inputs}, inputs.keys())
    _check_names(signature.file, "outputs", {port.name for port in signature.outputs}, outputs.keys())
    for port in signature.inputs:
        _check_type(signature.file, inputs[port.name], *described[port.name])
    results = {spec.name: (spec.dtype, spec.shape) for spec in manifest.outputs}
    types = {}
    shape: tuple[int | str, ...]
    for output in signature.outputs:
        node = outputs[output.name]
        if output.tensor is not None:
            spec = specs[output.tensor]
            types[output.name], shape = spec.dtype, _shape_written(node.shape, spec.shape)
        elif output.kind == "output":
            types[output.name], shape = results[output.name]
            if types[output.name] == "bfloat16":
                raise UnsupportedVersionError(
                    f"{signature.file}: the output `{output.name}` is bfloat16, which numpy does not have. Export the "
                    "model with an output of float32."
                )
        elif output.kind == "merged":
            types[output.name], shape = _numpy_type(signature.file, node), tuple(node.shape)
        else:
            types[output.name], shape = _numpy_type(signature.file, node), ()
            if output.kind == "sum":
                continue
            if node.shape:
                raise GraphError(f"{signature.file}: the metric `{output.name}` is not a scalar.")
        _check_type(signature.file, node, types[output.name], shape)
    return types


def _shape_written(declared: Sequence[int | str | None], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which a graph writes a tensor: its own if that has as many elements, which are then the tensor's."""
    own = tuple(dim for dim in declared if isinstance(dim, int))
    return own if own and len(own) == len(declared) and math.prod(own) == math.prod(shape) else shape


def _fixed(declared: Sequence[int | str | None], name: str, signature: Signature) -> tuple[int, ...]:
    """The shape of an output that must say it."""
    shape = tuple(dim for dim in declared if isinstance(dim, int))
    if len(shape) != len(declared):
        raise GraphError(f"{signature.file}: the sum `{name}` has no fixed shape.")
    return shape


def _check_names(file: str, what: str, expected: set[str], found: Any) -> None:
    if expected != set(found):
        raise GraphError(
            f"{file}: the graph's {what} differ from the manifest's signature; only in the manifest: "
            f"{sorted(expected - set(found))}, only in the graph: {sorted(set(found) - expected)}."
        )


def _check_type(file: str, node: Any, dtype: str, shape: tuple[int | str, ...]) -> None:
    # ONNX Runtime reports scalars and unknown shapes alike as []. It compares the real shapes when it runs.
    fits = not node.shape or (
        len(node.shape) == len(shape)
        and all(
            actual == wanted or not (isinstance(actual, int) and isinstance(wanted, int))
            for actual, wanted in zip(node.shape, shape, strict=True)
        )
    )
    if node.type != f"tensor({DTYPES[dtype].ort})" or not fits:
        raise GraphError(
            f"{file}: `{node.name}` is {node.type} of shape {node.shape}; the manifest says {dtype} of shape "
            f"{list(shape)}."
        )


def _numpy_type(file: str, node: Any) -> str:
    for row in DTYPES.values():
        if node.type == f"tensor({row.ort})" and row.name != "bfloat16" and row.storage != np.dtype(np.bool_):
            return row.name
    raise GraphError(f"{file}: the result `{node.name}` is {node.type}, which is not a number of numpy's.")
