"""One graph of a bundle, run once from the bundle's own state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edgeopt.bundle import Bundle
from edgeopt_exporters.verification.reference import Arrays
from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.manifest import Manifest
from edgeopt_runtime.providers import RUNTIME_ERRORS
from edgeopt_runtime.state import ort_value

__all__ = ["GraphFailed", "GraphRunner", "Ran", "quiet_session"]


class GraphFailed(Exception):  # noqa: N818  # it becomes a typed error, or a decision, where it is caught
    """ONNX Runtime does not run a graph on these inputs; the message is its own."""


@dataclass(frozen=True)
class Ran:
    """Results of one run.

    Attributes:
        results: Outputs of the model and metrics, by name.
        state: The next values of the tensors that the graph writes, joined ones taken apart.
    """

    results: Arrays
    state: Arrays


def quiet_session(graph: bytes) -> onnxruntime.InferenceSession:
    """A session on the CPU that keeps its complaints to itself: what matters is raised.

    Raises:
        GraphFailed: ONNX Runtime refuses the graph.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # A graph runs twice or so: threads of its own would cost more than they save, most of all on busy cores.
    options.intra_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except RUNTIME_ERRORS as error:
        raise GraphFailed(str(error)) from error


class GraphRunner:
    """Runs the graph of one signature, always from the first state.

    Args:
        bundle: Where it is from.
        signature: Its name.

    Raises:
        GraphFailed: ONNX Runtime refuses the graph.
    """

    def __init__(self, bundle: Bundle, signature: str) -> None:
        self._manifest: Manifest = bundle.manifest
        self._signature = self._manifest.signatures[signature]
        graph = bundle.graphs[self._signature.file]
        self._session = quiet_session(graph if isinstance(graph, bytes) else b"")
        self._state = bundle.state
        self._members = {entry.name: entry.members for entry in self._manifest.joined}
        self._specs = {spec.name: spec for spec in (*self._manifest.tensors, *self._manifest.accumulators)}

    def run(self, batch: Mapping[str, NDArray[Any]]) -> Ran:
        """Results for one batch.

        Raises:
            GraphFailed: ONNX Runtime does not run it.
        """
        hyper = {spec.name: np.asarray(spec.default, spec.dtype) for spec in self._manifest.hyperparameters}
        of_kind = {"state": self._tensor, "batch": batch.__getitem__, "hyper": hyper.__getitem__}
        feeds = {port.name: of_kind[port.kind](port.name) for port in self._signature.inputs}
        try:
            inputs = {name: _ort_value(array) for name, array in feeds.items()}
            values = [value.numpy() for value in self._session.run_with_ort_values(None, inputs)]
        except RUNTIME_ERRORS as error:
            raise GraphFailed(str(error)) from error
        ports = list(zip(self._signature.outputs, values, strict=True))
        state: dict[str, NDArray[Any]] = {}
        for port, value in ports:
            if port.tensor is not None:
                state |= self._parts(port.tensor, value)
        return Ran({port.name: value for port, value in ports if port.tensor is None}, state)

    def first(self, name: str) -> NDArray[Any]:
        """What a tensor of the state is before the run; bfloat16 as float32."""
        return _plain(np.asarray(self._state[name]))

    def _tensor(self, name: str) -> NDArray[Any]:
        if name in self._members:
            return np.concatenate([self._tensor(member).reshape(-1) for member in self._members[name]])
        if name in self._state:
            return np.asarray(self._state[name])
        spec = self._specs[name]
        return np.zeros(spec.shape, DTYPES[spec.dtype].storage)

    def _parts(self, name: str, value: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """A tensor by its name, or the members of a joined one."""
        members = self._members.get(name)
        if members is None:
            # A graph may write a tensor in another shape.
            return {name: value.reshape(self._specs[name].shape)}
        sizes = [int(np.prod(self._specs[member].shape, dtype=np.int64)) for member in members]
        parts = np.split(value, np.cumsum(sizes)[:-1])
        return {member: part.reshape(self._specs[member].shape) for member, part in zip(members, parts, strict=True)}


def _ort_value(array: NDArray[Any]) -> onnxruntime.OrtValue:
    if array.dtype == ml_dtypes.bfloat16:
        return ort_value(np.asarray(array, order="C").view(np.uint16), "bfloat16")
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"))


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array
