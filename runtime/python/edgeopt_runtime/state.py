"""The state of a session in memory: one tensor of each name, and what the last run has written beside it.

ONNX Runtime allocates what a graph writes, from the arena that its activations have just left, and only when the result
is wanted does it take the place of what was read. Nothing is copied, and a step that went wrong costs nothing: it is
simply not committed. Buffers of our own to write to would lie idle for most of a step, beside the arena.

An output must never be written to the memory of its own input: nodes that still have to read the input would see the
new value. Nor is what ONNX Runtime has allocated ever written to from here: it may be a constant of the graph, or one
array for two outputs. `StateBuffers.writable` has a copy made first.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.errors import StateError, UnsupportedVersionError
from edgeopt_runtime.manifest import Joined, Manifest, TensorSpec, counts_draws
from edgeopt_runtime.tensors import aligned_copy, aligned_zeros, check_array, is_finite, is_immutable

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["StateBuffers", "ort_value"]


def ort_value(array: NDArray[Any], dtype: str) -> onnxruntime.OrtValue:
    """An ONNX Runtime tensor that shares the array's memory.

    Raises:
        UnsupportedVersionError: The type is bfloat16, and this ONNX Runtime cannot take it from numpy.
    """
    if dtype != "bfloat16":
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    if not hasattr(onnxruntime.OrtValue, "ortvalue_from_numpy_with_onnx_type"):
        raise UnsupportedVersionError(
            f"The bundle holds bfloat16 tensors, which onnxruntime {onnxruntime.__version__} cannot take from numpy. "
            "Update the onnxruntime package to 1.20 or newer."
        )
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, DTYPES[dtype].onnx)


class StateBuffers:
    """Named tensors.

    Tensors that are joined lie in the memory of the joined tensor, where `current` finds them by their own names.

    Args:
        manifest: Describes the tensors, and the graphs.
        values: First values, which are copied unless nothing can change them; tensors without one start as zeros.
    """

    def __init__(self, manifest: Manifest, values: Mapping[str, NDArray[Any]]) -> None:
        memory = manifest.memory
        self.specs = {spec.name: spec for spec in (*manifest.tensors, *manifest.accumulators, *memory)}
        self._places = {
            member: place for entry in manifest.joined for member, place in _places(entry, self.specs).items()
        }
        # Of each tensor the array, the value that graphs read, or both; one that has neither is zero.
        self._arrays: dict[str, NDArray[Any]] = {}
        self._values: dict[str, onnxruntime.OrtValue] = {}
        self._writable: set[str] = set()
        self._written: dict[str, onnxruntime.OrtValue] = {}
        values = {name: check_array(self.specs[name], values[name]) for name in self.specs.keys() & values.keys()}
        replaced = {port.tensor for signature in manifest.signatures.values() for port in signature.outputs}
        for spec in memory:
            if spec.name in values:
                array = values[spec.name]
                # The content of a file is shared until the first step lets go of all of it. What no graph replaces
                # would hold it for good.
                if not (spec.name in replaced and is_immutable(array)):
                    array = aligned_copy(array)
                    self._writable.add(spec.name)
                self._arrays[spec.name] = array
        for member in self._places.keys() & values.keys():
            self.writable(member)[...] = values[member]

    def current(self, name: str) -> NDArray[Any]:
        """The array that holds the tensor now, in the session's memory; only to be read."""
        if name in self._places:
            joined, part = self._places[name]
            return self.current(joined)[part].reshape(self.specs[name].shape)
        if name not in self._arrays:
            if name not in self._values:
                return self.writable(name)
            self._arrays[name] = _seen(self._values[name], self.specs[name])
        return self._arrays[name]

    def writable(self, name: str) -> NDArray[Any]:
        """The array that holds the tensor now, to be changed in place; one from an earlier call may be another."""
        if name in self._places:
            joined, part = self._places[name]
            return self.writable(joined)[part].reshape(self.specs[name].shape)
        if name not in self._writable:
            spec = self.specs[name]
            if name in self._arrays or name in self._values:
                array = aligned_copy(self.current(name))
            else:
                array = aligned_zeros(spec.shape, DTYPES[spec.dtype].storage)
            self._values.pop(name, None)
            self._arrays[name] = array
            self._writable.add(name)
        return self._arrays[name]

    def clear(self, name: str) -> None:
        """Set the tensor to zero; it takes no memory until it is needed again."""
        if name in self._places:
            self.writable(name).fill(0)
            return
        self._values.pop(name, None)
        self._arrays.pop(name, None)
        self._writable.discard(name)

    def next(self, name: str) -> NDArray[Any]:
        """The array that the last run has written, if it was not committed; only to be read."""
        if name in self._places:
            joined, part = self._places[name]
            return self.next(joined)[part].reshape(self.specs[name].shape)
        return _seen(self._written[name], self.specs[name])

    def reading(self, name: str) -> onnxruntime.OrtValue:
        """What a graph reads now."""
        if name not in self._values:
            self._values[name] = ort_value(self.current(name), self.specs[name].dtype)
        return self._values[name]

    def wrote(self, values: Mapping[str, onnxruntime.OrtValue]) -> None:
        """Keep what a run has written, until it is committed or the next one."""
        self._written = dict(values)

    def commit(self) -> None:
        """Make what the last run has written the state."""
        for name, value in self._written.items():
            self._arrays.pop(name, None)
            self._writable.discard(name)
            self._values[name] = value
        self._written = {}

    def replace(self, arrays: Mapping[str, Any], roles: Collection[str]) -> None:
        """Copy arrays into the current tensors of some roles; all of them, or none if one does not fit.

        Raises:
            StateError: A name is not that of a tensor with such a role, or an array has another dtype or shape.
        """
        checked = []
        for name, array in arrays.items():
            spec = self.specs.get(name)
            if spec is None or spec.role not in roles:
                raise StateError(f"The bundle has no {' or '.join(roles)} `{name}`.")
            checked.append((name, check_array(spec, np.asarray(array))))
        for name, array in checked:
            self.writable(name)[...] = array

    def reset_seed(self, seed: int) -> None:
        """Set the seed of the random numbers, and the count of those drawn to zero.

        Raises:
            StateError: There is no seed, or it does not fit its type.
        """
        seeds = [self.writable(name) for name, spec in self.specs.items() if spec.role == "seed"]
        if not seeds:
            raise StateError("The bundle uses no random numbers; there is no seed to set.")
        for array in seeds:
            limits = np.iinfo(array.dtype)
            if not isinstance(seed, (int, np.integer)) or not limits.min <= seed <= limits.max:
                raise StateError(f"The seed must be a whole number from {limits.min} to {limits.max}, not {seed}.")
        for array in seeds:
            array[...] = seed
        for name in self.specs:
            if self.counts_draws(name):
                self.clear(name)

    def is_finite(self, name: str) -> bool:
        """Whether the tensor holds neither NaN nor infinities now."""
        return is_finite(self.current(name), self.specs[name].dtype)

    @property
    def completed(self) -> int | None:
        """How many updates were done, if there is a counter of them."""
        name = self.counter("step")
        return None if name is None else int(self.current(name))

    def counter(self, last: str) -> str | None:
        """The name of the counter whose last component is this, if there is one."""
        counters = (spec.name for spec in self.specs.values() if spec.role == "counter")
        return next((name for name in counters if name.rpartition(".")[2] == last), None)

    def counts_draws(self, name: str) -> bool:
        """Whether the tensor is the count of runs that drew random numbers."""
        return counts_draws(self.specs[name])


def _seen(value: onnxruntime.OrtValue, spec: TensorSpec) -> NDArray[Any]:
    """The memory of a value as an array that keeps it alive, and cannot be written to."""
    storage = DTYPES[spec.dtype].storage
    if not spec.nbytes:
        return np.empty(spec.shape, storage)
    memory = (ctypes.c_char * spec.nbytes).from_address(value.data_ptr())
    memory.value_behind = value  # type: ignore[attr-defined]
    array = np.frombuffer(memory, storage).reshape(spec.shape)
    array.flags.writeable = False
    return array


def _places(entry: Joined, specs: Mapping[str, TensorSpec]) -> dict[str, tuple[str, slice]]:
    """Where in the joined tensor each member lies."""
    places, start = {}, 0
    for member in entry.members:
        end = start + math.prod(specs[member].shape)
        places[member] = entry.name, slice(start, end)
        start = end
    return places
