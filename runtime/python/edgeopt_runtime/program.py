"""One graph of a bundle, bound to the buffers of the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

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

    State and batch are bound anew for each run, and let go of after it: a binding would keep an old state alive beside
    the new one. ONNX Runtime allocates what is written. With other providers than the CPU it copies an input to the
    device when it is bound, so that hyperparameters are bound anew as well.

    Attributes:
        signature: What goes in and out.

    Args:
        name: Name of the signature.
        graph: The serialized ONNX model.
        manifest: Describes the tensors and the signature.
        state: Holds the tensors.
        hyper: The hyperparameters by name, arrays of shape ``()`` whose memory the graph reads.
        options: Settings of ONNX Runtime.

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
    ) -> None:
        self.signature = signature = manifest.signatures[name]
        self._file = signature.file
        self._state = state
        if has_external_data(graph):
            # ONNX Runtime would open whatever file the model names.
            raise GraphError(f"{signature.file} has tensors in other files, which a bundle's graphs must not have.")
        self._session = options.open(signature.file, graph)
        try:
            types = _check_graph(self._session, signature, manifest)
        except RUNTIME_ERRORS as error:
            # Names in the graph that are not UTF-8 end here.
            raise GraphError(f"{signature.file} cannot be examined: {error}.") from error
        batch = {port.name for port in signature.inputs if port.kind == "batch"}
        self._batch_dtypes = {spec.name: spec.dtype for spec in manifest.inputs if spec.name in batch}
        self._batch_dtypes.update(
            {port.name: state.specs[port.tensor].dtype for port in signature.inputs if port.tensor is not None}
        )
        self._reads = [port.name for port in signature.inputs if port.kind == "state"]
        self._writes = [(port.name, port.tensor) for port in signature.outputs if port.tensor is not None]
        self._results = [port.name for port in signature.outputs if port.kind == "output"]
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
        self._scalar_values = [(key, ort_value(array, types[key])) for key, array in self._scalars.items()]
        self._binding = self._session.io_binding()
        self._on_device = not options.cpu_only

    def run(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Run the graph on a checked batch and return its numbers; the state changes only with `commit`.

        Raises:
            ExecutionError: ONNX Runtime failed.
        """
        self._run(batch)
        return {name: array.item() for name, array in self._scalars.items()}

    def predict(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Run the graph on a checked batch and return its arrays, copies of their own.

        Raises:
            ExecutionError: ONNX Runtime failed.
        """
        results = self._run(batch)
        return {name: value.numpy() for name, value in zip(self._results, results, strict=True)}

    def commit(self) -> None:
        """Make what the last run wrote the state."""
        self._state.commit()

    def _run(self, batch: Mapping[str, NDArray[Any]]) -> list[onnxruntime.OrtValue]:
        """Run the graph, and keep what it writes with the state; returns the values of its results."""
        binding = self._binding
        self._state.wrote({})
        try:
            self._bind(batch)
            self._session.run_with_iobinding(binding)
            if self._on_device:
                binding.synchronize_outputs()
            values = binding.get_outputs()
        except RUN_ERRORS as error:
            raise ExecutionError(
                f"ONNX Runtime failed while running {self._file}: {error}. The state is unchanged. "
                f"{_advice(error, batch)}"
            ) from error
        finally:
            binding.clear_binding_inputs()
            binding.clear_binding_outputs()
        self._state.wrote({tensor: value for (_, tensor), value in zip(self._writes, values, strict=False)})
        return values[len(self._writes) + len(self._scalars) :]

    def _bind(self, batch: Mapping[str, NDArray[Any]]) -> None:
        binding = self._binding
        for name in self._reads:
            binding.bind_ortvalue_input(name, self._state.reading(name))
        for name, value in self._hyper:
            binding.bind_ortvalue_input(name, value)
        for name, dtype in self._batch_dtypes.items():
            if dtype == "bfloat16":
                binding.bind_ortvalue_input(name, ort_value(batch[name], dtype))
            else:
                binding.bind_cpu_input(name, batch[name])
        for name, _ in self._writes:
            binding.bind_output(name)
        for name, value in self._scalar_values:
            binding.bind_ortvalue_output(name, value)
        for name in self._results:
            binding.bind_output(name)


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
    for output in signature.outputs:
        node = outputs[output.name]
        if output.tensor is not None:
            types[output.name], shape = described[output.tensor]
        elif output.kind == "output":
            types[output.name], shape = results[output.name]
            if types[output.name] == "bfloat16":
                raise UnsupportedVersionError(
                    f"{signature.file}: the output `{output.name}` is bfloat16, which numpy does not have. Export the "
                    "model with an output of float32."
                )
        else:
            types[output.name], shape = _numpy_type(signature.file, node), ()
            if node.shape:
                raise GraphError(f"{signature.file}: the metric `{output.name}` is not a scalar.")
        _check_type(signature.file, node, types[output.name], shape)
    return types


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
    raise GraphError(f"{file}: the metric `{node.name}` is {node.type}, which is not a number.")
