"""State tensors in memory and in a safetensors file.

Both are ours, so that a large state goes from its buffers to the disk, and back, without a copy in between.
Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeopt_runtime import shown
from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.errors import BundleError, StateError, TamperedBundleError, TruncatedBundleError
from edgeopt_runtime.manifest import TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Buffer",
    "Entry",
    "aligned_copy",
    "aligned_empty",
    "aligned_zeros",
    "check_array",
    "decode_state",
    "encode_state",
    "is_finite",
    "is_immutable",
    "largest_file",
    "not_finite",
    "raw_bytes",
    "read_entries",
]

Buffer = bytes | memoryview

# What a tensor takes in the header of a safetensors file at most: a name of 1024 characters, as escapes of 12 bytes
# each, its shape and its offsets. The file may have some metadata besides.
HEADER_BYTES = 1 << 14

# A cache line, and the alignment of ONNX Runtime's own allocator.
ALIGNMENT = 64


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An uninitialised C-contiguous array whose data starts on a 64-byte boundary."""
    return _aligned(shape, dtype, np.empty)


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Zeros in memory as `aligned_empty` gives it, of which a system hands out what is used."""
    return _aligned(shape, dtype, np.zeros)


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any], make: Callable[..., NDArray[np.uint8]]) -> NDArray[Any]:
    size = dtype.itemsize
    for length in shape:
        size *= length
    try:
        raw = make(size + ALIGNMENT, np.uint8)
    except MemoryError as error:
        raise BundleError(f"There is too little memory: a tensor of the bundle needs {size} bytes.") from error
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    """A copy in memory from `aligned_empty`."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def is_immutable(array: NDArray[Any]) -> bool:
    """Whether its memory is that of ``bytes``, in which nothing can be written, and suits operators."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner, bytes) and array.flags.c_contiguous and array.flags.aligned


def raw_bytes(array: NDArray[Any]) -> memoryview:
    """The bytes of an array without a copy, if it is C-contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def not_finite(array: NDArray[Any], dtype: str) -> NDArray[np.bool_]:
    """Which elements are infinite or NaN; bfloat16 is given as the ``uint16`` of the same bits."""
    if dtype == "bfloat16":
        exponents: NDArray[np.bool_] = np.equal(array & 0x7F80, 0x7F80)
        return exponents
    return np.logical_not(np.isfinite(array)) if array.dtype.kind == "f" else np.zeros(array.shape, np.bool_)


def is_finite(array: NDArray[Any], dtype: str) -> bool:
    """Whether no element is infinite or NaN."""
    return not not_finite(array, dtype).any()


def check_array(spec: TensorSpec, array: NDArray[Any]) -> NDArray[Any]:
    """The array as it is stored for ``spec``.

    Arrays of a bfloat16 type, such as that of ml_dtypes, are viewed as the ``uint16`` of the same bits.

    Raises:
        StateError: Its dtype or shape is not that of the tensor.
    """
    if array.dtype.name == "bfloat16" and spec.dtype == "bfloat16":
        array = array.view(np.uint16)
    expected = DTYPES[spec.dtype].storage
    if array.dtype != expected or array.shape != spec.shape:
        raise StateError(
            f"The tensor `{spec.name}` must be {spec.dtype} of shape {list(spec.shape)}, but the array given is "
            f"{array.dtype} of shape {list(array.shape)}."
        )
    return array


def encode_state(
    specs: Sequence[TensorSpec], state: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> list[Buffer]:
    """The pieces of a safetensors file, in order; ``metadata`` go into its header.

    The pieces share the memory of the arrays: nothing may change them until the file is written. Tensors with larger
    elements come first, so that each starts at a multiple of its element size.

    Raises:
        StateError: A tensor is missing or has another dtype or shape than its spec.
    """
    ordered = sorted(specs, key=lambda spec: (-DTYPES[spec.dtype].storage.itemsize, spec.name))
    header: dict[str, Mapping[str, Any]] = {} if metadata is None else {"__metadata__": metadata}
    pieces: list[Buffer] = []
    offset = 0
    for spec in ordered:
        if spec.name not in state:
            raise StateError(f"There is no array for the tensor `{spec.name}`.")
        array = check_array(spec, np.asarray(state[spec.name]))
        header[spec.name] = {
            "dtype": DTYPES[spec.dtype].safetensors,
            "shape": list(spec.shape),
            "data_offsets": [offset, offset + spec.nbytes],
        }
        offset += spec.nbytes
        pieces.append(raw_bytes(array))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *pieces]


def largest_file(specs: Sequence[TensorSpec]) -> int:
    """How many bytes a safetensors file with these tensors can have."""
    return sum(spec.nbytes for spec in specs) + HEADER_BYTES * (len(specs) + 4)


def decode_state(
    file: str, content: bytes, specs: Sequence[TensorSpec], accumulators: Sequence[TensorSpec] = ()
) -> dict[str, NDArray[Any]]:
    """The tensors of a safetensors file, as read-only arrays.

    A file holds all of ``specs`` and nothing else, or all of ``specs`` and all of ``accumulators``.

    Args:
        file: Its name.
        content: Its bytes.
        specs: What it must hold.
        accumulators: What it may hold besides.

    Raises:
        TamperedBundleError: It is not a safetensors file, or a name, dtype or shape differs from the manifest.
        TruncatedBundleError: A tensor is missing.
    """
    entries, start = read_entries(content, file)
    wanted = [*specs, *(accumulators if any(spec.name in entries for spec in accumulators) else ())]
    unknown = entries.keys() - {spec.name for spec in wanted}
    if unknown:
        raise TamperedBundleError(f"{file} holds tensors that the manifest does not know: {shown.some(unknown)}.")
    missing = {spec.name for spec in wanted} - entries.keys()
    if missing:
        raise TruncatedBundleError(f"{file} lacks tensors that the manifest lists: {shown.some(missing)}.")
    state = {}
    for spec in wanted:
        entry = entries[spec.name]
        dtype = DTYPES[spec.dtype]
        if entry.dtype != dtype.safetensors or entry.shape != spec.shape:
            raise TamperedBundleError(
                f"{file} holds `{spec.name}` as {shown.value(entry.dtype)} of shape "
                f"{shown.value(list(entry.shape))}; the manifest says {spec.dtype} of shape {list(spec.shape)}."
            )
        if entry.end - entry.begin != spec.nbytes:
            raise TamperedBundleError(
                f"{file} gives `{spec.name}` {entry.end - entry.begin} bytes; it has {spec.nbytes}."
            )
        # Of bytes, which makes it read-only.
        array = np.frombuffer(content, dtype.storage, math.prod(spec.shape), start + entry.begin).reshape(spec.shape)
        state[spec.name] = array
    return state


class Entry(NamedTuple):
    """A tensor in the header of a safetensors file: its bytes stand from ``begin`` to ``end`` of the data."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_entries(content: bytes, file: str = "state.safetensors") -> tuple[dict[str, Entry], int]:
    """What the header of a safetensors file lists, tensors that follow each other without gaps; where data begins.

    Raises:
        TamperedBundleError: It is not the header of a safetensors file.
    """
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise _no_safetensors(file, "its header is longer than the file")
    start = 8 + length
    try:
        header = json.loads(content[8:start].decode(), object_pairs_hook=_without_repetition)
        # Whatever else a writer has to say.
        header.pop("__metadata__", None)
        entries = {name: _entry(description) for name, description in header.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _no_safetensors(file, f"its header cannot be read ({error})") from error
    end = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != end or entry.end < end:
            raise _no_safetensors(file, "its tensors overlap or leave gaps")
        end = entry.end
    if end != len(content) - start:
        raise _no_safetensors(file, "its tensors are not as long as its data")
    return entries, start


def _entry(description: Mapping[str, Any]) -> Entry:
    dtype, shape = description["dtype"], description["shape"]
    begin, end = description["data_offsets"]
    if type(dtype) is not str or type(shape) is not list or not all(type(n) is int for n in (*shape, begin, end)):
        raise TypeError("an entry has other types")
    return Entry(dtype, tuple(shape), begin, end)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _no_safetensors(file: str, why: str) -> TamperedBundleError:
    return TamperedBundleError(f"{file} is not a safetensors file: {why}.")
