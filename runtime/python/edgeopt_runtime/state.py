"""The state of a session in memory: two buffers for each tensor that a graph replaces.

A graph reads one buffer of a tensor and writes the other, and only when the result is wanted do the two change places.
An output must never be written to the buffer of its own input: nodes that still have to read the input would see the
new value. Nothing is copied, and a step that went wrong costs nothing: it is simply not committed.

Tensors that the same graphs replace always change places together. Such a group has one bit of `StateBuffers.sides`,
which says which of the two buffers holds the current values.

Letting ONNX Runtime allocate what is written, from the arena that its activations have just left, promises one copy of
the state less. It does not keep the promise: a state scattered over the arena leaves gaps that fit nothing, and the
arena grows for dozens of steps, in the end to as much.

Buffers are made at the first need. Until a step has written both sides of a tensor, one of them may be the very bytes
of the file that was read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.errors import StateError, UnsupportedVersionError
from edgeopt_runtime.manifest import Joined, Manifest, Signature, TensorSpec, counts_draws
from edgeopt_runtime.tensors import aligned_copy, aligned_empty, aligned_zeros, check_array, is_finite, is_immutable

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
    """Named tensors with their buffers.

    Attributes:
        moves: How often a buffer took the place of another; what was bound before knows only the old one.

    Tensors that are joined lie in the memory of the joined tensor, where `current` finds them by their own names.

    Args:
        manifest: Describes the tensors, and the graphs, which decide what is replaced together.
        values: First values, copied unless nothing can change them; tensors without one start as zeros.
    """

    def __init__(self, manifest: Manifest, values: Mapping[str, NDArray[Any]]) -> None:
        memory = manifest.memory
        stored = (*manifest.changing, *manifest.constants, *manifest.accumulators)
        self.specs = {spec.name: spec for spec in (*stored, *memory)}
        self.sides = self.moves = 0
        self._buffers: dict[tuple[str, bool], NDArray[Any]] = {}
        self._values: dict[tuple[str, bool, tuple[int, ...]], onnxruntime.OrtValue] = {}
        self._bits = _group_bits(memory, manifest.signatures)
        self._places = {
            member: place for entry in manifest.joined for member, place in _places(entry, self.specs).items()
        }
        values = {name: check_array(self.specs[name], values[name]) for name in self.specs.keys() & values.keys()}
        replaced = {port.tensor for signature in manifest.signatures.values() for port in signature.outputs}
        for spec in memory:
            if spec.name in values:
                array = values[spec.name]
                # What no graph replaces would keep the content of the whole file in memory for good; which is what is
                # wanted of a file of constants.
                shared = (spec.name in replaced or spec.constant is not None) and is_immutable(array)
                self._buffers[spec.name, False] = array if shared else aligned_copy(array)
        for member in self._places.keys() & values.keys():
            self.writable(member)[...] = values[member]

    def mask(self, names: Iterable[str]) -> int:
        """The bits of ``sides`` that concern these tensors."""
        mask = 0
        for name in names:
            mask |= self._bits[name]
        return mask

    def current(self, name: str) -> NDArray[Any]:
        """The array that holds the tensor now, in the session's memory; only to be read."""
        if name in self._places:
            joined, part = self._places[name]
            return self.current(joined)[part].reshape(self.specs[name].shape)
        return self._buffer(name, bool(self.sides & self._bits[name]), aligned_zeros)

    def writable(self, name: str) -> NDArray[Any]:
        """The array that holds the tensor now, to be changed in place."""
        if name in self._places:
            joined, part = self._places[name]
            return self.writable(joined)[part].reshape(self.specs[name].shape)
        array, side = self.current(name), bool(self.sides & self._bits[name])
        return array if array.flags.writeable else self._move(name, side, aligned_copy(array))

    def next(self, name: str) -> NDArray[Any]:
        """The array that the last run has written, if it was not committed; it shares the session's memory."""
        if name in self._places:
            joined, part = self._places[name]
            return self.next(joined)[part].reshape(self.specs[name].shape)
        return self._buffers[name, not self.sides & self._bits[name]]

    def reading(self, name: str) -> onnxruntime.OrtValue:
        """What a graph reads now."""
        return self._value(name, bool(self.sides & self._bits[name]), self.specs[name].shape)

    def writing(self, name: str, shape: Sequence[int]) -> onnxruntime.OrtValue:
        """What a graph writes now, in the graph's own shape, to become current when it is committed."""
        side = not self.sides & self._bits[name]
        if not self._buffer(name, side, aligned_empty).flags.writeable:
            self._move(name, side, aligned_empty(self.specs[name].shape, DTYPES[self.specs[name].dtype].storage))
        return self._value(name, side, tuple(shape))

    def clear(self, name: str) -> None:
        """Set the tensor to zero; one that was never anything else still takes no memory."""
        if name in self._places or (name, bool(self.sides & self._bits[name])) in self._buffers:
            self.writable(name).fill(0)

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
                self.writable(name)[...] = 0

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

    def _buffer(self, name: str, side: bool, make: Callable[..., NDArray[Any]]) -> NDArray[Any]:
        if (name, side) not in self._buffers:
            # A session that only predicts holds one copy of the state, one that only steps no accumulators.
            self._buffers[name, side] = make(self.specs[name].shape, DTYPES[self.specs[name].dtype].storage)
        return self._buffers[name, side]

    def _move(self, name: str, side: bool, array: NDArray[Any]) -> NDArray[Any]:
        self._buffers[name, side] = array
        for key in [key for key in self._values if key[:2] == (name, side)]:
            del self._values[key]
        self.moves += 1
        return array

    def _value(self, name: str, side: bool, shape: tuple[int, ...]) -> onnxruntime.OrtValue:
        key = name, side, shape
        if key not in self._values:
            array = self._buffer(name, side, aligned_zeros)
            self._values[key] = ort_value(array.reshape(shape), self.specs[name].dtype)
        return self._values[key]


def _places(entry: Joined, specs: Mapping[str, TensorSpec]) -> dict[str, tuple[str, slice]]:
    """Where in the joined tensor each member lies."""
    places, start = {}, 0
    for member in entry.members:
        end = start + math.prod(specs[member].shape)
        places[member] = entry.name, slice(start, end)
        start = end
    return places


def _group_bits(specs: Sequence[TensorSpec], signatures: Mapping[str, Signature]) -> dict[str, int]:
    """A bit for each tensor, the same for those that the same graphs replace; 0 for those that none does."""
    writers: dict[str, set[str]] = {spec.name: set() for spec in specs}
    for name, signature in signatures.items():
        for port in signature.outputs:
            if port.tensor is not None:
                writers[port.tensor].add(name)
    groups: dict[frozenset[str], int] = {frozenset(): 0}
    for names in writers.values():
        groups.setdefault(frozenset(names), 1 << (len(groups) - 1))
    return {tensor: groups[frozenset(names)] for tensor, names in writers.items()}
