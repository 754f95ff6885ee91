"""Weights that go from one model into another: which name is which, what fits, and what does not."""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeopt_runtime import shown
from edgeopt_runtime.conversion import UNREADABLE, Lost, as_array, bits_of_bfloat16, converted, is_torch_bfloat16
from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.errors import BundleError, StateError, WeightsError
from edgeopt_runtime.folders import open_regular
from edgeopt_runtime.manifest import Manifest
from edgeopt_runtime.tensors import read_entries
from edgeopt_runtime.weights import unwrapped

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Tensor", "WeightReport", "by_own_name", "is_safetensors", "matched", "read_safetensors", "tensors_of"]

# Names in a message; the report has all.
LISTED = 20
# The limit of the format's own reader.
LARGEST_HEADER = 100_000_000


class Tensor(NamedTuple):
    """A weight: the name of its type, its shape, and its values, None where nobody here can read such a type."""

    dtype: str
    shape: tuple[int, ...]
    array: NDArray[Any] | None = None


@dataclass(frozen=True)
class WeightReport:
    """What became of weights that were to go from one place into another.

    Attributes:
        loaded: Tensors that got new values, by the names that they have where they are now.
        missing: Those that nothing was given for.
        unexpected: Names that were given and belong to nothing.
        shapes: Of each tensor that was given in another shape, that and its own.
        dtypes: Of each that was given in a type whose values its own does not have, that and its own.
    """

    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    dtypes: Mapping[str, tuple[str, str]]

    @property
    def complete(self) -> bool:
        """Whether everything was given, and nothing else."""
        return not (self.missing or self.unexpected or self.shapes or self.dtypes)

    def __str__(self) -> str:
        lines = [f"{len(self.loaded)} tensors fit"]
        for what, entries in (
            ("missing", [_name(name) for name in self.missing]),
            ("unexpected", [_name(name) for name in self.unexpected]),
            ("of another shape", [_differing(name, *pair) for name, pair in self.shapes.items()]),
            ("of another dtype", [_differing(name, *pair) for name, pair in self.dtypes.items()]),
        ):
            if entries:
                more = f" and {len(entries) - LISTED} more" if len(entries) > LISTED else ""
                lines.append(f"{what}: {', '.join(entries[:LISTED])}{more}")
        return "; ".join(lines) + "."


def matched(
    wanted: Mapping[str, Tensor],
    aliases: Mapping[str, str],
    given: Mapping[str, Tensor],
    *,
    needed: Collection[str],
    strict: bool,
) -> tuple[dict[str, NDArray[Any]], WeightReport]:
    """The arrays for some tensors, in their own types, and a report.

    Names match as they are, or without what wrappers put into them (``module.``, ``_orig_mod.``, and PEFT's
    ``base_model.model.`` and ``base_layer.``). Types of the same
    kind are converted where every value survives.

    Args:
        wanted: The tensors to find values for.
        aliases: Other names of them.
        given: The values by name.
        needed: The tensors that are missing if nothing is given for them.
        strict: Refuse unless the report is complete.

    Raises:
        WeightsError: It is not; the error lists all that differs.
        StateError: One tensor is given two values under two of its names.
    """
    own_names = {
        **{alias: name for alias, name in aliases.items() if name in wanted},
        **{name: name for name in wanted},
    }
    known = {**{unwrapped(name): own for name, own in own_names.items()}, **own_names}
    found: dict[str, tuple[str, Tensor]] = {}
    unexpected = []
    for name, tensor in given.items():
        own = known.get(name) or known.get(unwrapped(name))
        if own is None:
            unexpected.append(name)
        elif own in found and not _equal(found[own][1], tensor):
            raise StateError(f"`{name}` and `{found[own][0]}` are one tensor here, but are given different values.")
        else:
            found[own] = name, tensor
    arrays: dict[str, NDArray[Any]] = {}
    shapes, dtypes = {}, {}
    for own, (_, tensor) in found.items():
        if tensor.shape != wanted[own].shape:
            shapes[own] = tensor.shape, wanted[own].shape
            continue
        array = _as(wanted[own].dtype, tensor)
        if array is None:
            dtypes[own] = tensor.dtype, wanted[own].dtype
        else:
            arrays[own] = array
    missing = tuple(name for name in wanted if name in needed and name not in found)
    report = WeightReport(tuple(arrays), missing, tuple(unexpected), shapes, dtypes)
    if strict and not report.complete:
        raise WeightsError(
            f"The weights are not those of this model: {report} Nothing has changed; strict=False takes what fits.",
            report,
        )
    return arrays, report


def tensors_of(values: Mapping[str, Any]) -> dict[str, Tensor]:
    """Arrays, or tensors of PyTorch, by name; a parameter comes without its gradient.

    Raises:
        StateError: They are not given by name, or a value cannot be read.
    """
    if not isinstance(values, Mapping):
        raise StateError(f"Weights are given by name, as in `model.state_dict()`; got {type(values).__name__}.")
    tensors = {}
    for name, value in values.items():
        try:
            array = as_array(value)
        except UNREADABLE as error:
            raise StateError(f"The value of `{name}` cannot be read as an array: {shown.reason(error)}.") from error
        if is_torch_bfloat16(value):
            tensors[str(name)] = Tensor("bfloat16", array.shape, bits_of_bfloat16(array))
            continue
        dtype = array.dtype.name
        tensors[str(name)] = Tensor(dtype, array.shape, array.view(np.uint16) if dtype == "bfloat16" else array)
    return tensors


def by_own_name(manifest: Manifest, given: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Arrays under the names that their tensors have in the bundle.

    Args:
        manifest: Knows the tensors and their other names.
        given: Arrays, or tensors of PyTorch, by any of the names, or by those of a wrapped module.

    Raises:
        StateError: There are no names; a value cannot be read; or one tensor is given two values.
    """
    plain = {unwrapped(spec.name): spec.name for spec in manifest.tensors}
    plain.update({unwrapped(alias): name for alias, name in manifest.aliases.items()})
    known = {**plain, **manifest.aliases, **{spec.name: spec.name for spec in manifest.tensors}}
    dtypes = {spec.name: spec.dtype for spec in manifest.tensors}
    arrays: dict[str, Any] = {}
    for name, tensor in tensors_of(given).items():
        own = known.get(name) or known.get(unwrapped(name), name)
        # What numpy has no type for comes as bits, and goes on as numbers where those are wanted.
        numbers = _as(dtypes.get(own, ""), tensor) if tensor.dtype == "bfloat16" else None
        array: Any = tensor.array if numbers is None else numbers
        if own in arrays and not np.array_equal(arrays[own], array):
            raise StateError(f"`{name}` and `{own}` are one tensor of this model, but are given different values.")
        arrays[own] = array
    return arrays


def is_safetensors(path: Path) -> bool:
    """Whether a path is that of a file that begins as one of safetensors does, with the length of a header in JSON."""
    try:
        with open_regular(path) as file:
            start = file.read(9)
    except (OSError, ValueError, BundleError):
        return False
    return len(start) == 9 and start[8:] == b"{" and int.from_bytes(start[:8], "little") <= LARGEST_HEADER


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a file, which is mapped into memory and not read as a whole.

    Raises:
        StateError: It cannot be read, or is not a safetensors file.
    """
    place = shown.where(os.fspath(path))
    try:
        with open_regular(Path(os.fspath(path))) as file:
            content: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        entries, start = read_entries(content, place)
    except (OSError, ValueError, BundleError) as error:
        raise StateError(f"{place} cannot be read: {error}") from error
    rows = {row.safetensors: row for row in DTYPES.values()}
    tensors = {}
    for name, entry in entries.items():
        row = rows.get(entry.dtype)
        if row is None:
            tensors[name] = Tensor(entry.dtype, entry.shape)
            continue
        count = 1
        for length in entry.shape:
            count *= max(length, -1)
        if any(length < 0 for length in entry.shape) or count * row.storage.itemsize != entry.end - entry.begin:
            raise StateError(f"{place} gives {_name(name)} another number of bytes than its shape needs.")
        array = np.frombuffer(content, row.storage, count, start + entry.begin) if count else np.empty(0, row.storage)
        tensors[name] = Tensor(row.name, entry.shape, array.reshape(entry.shape))
    return tensors


def _as(dtype: str, tensor: Tensor) -> NDArray[Any] | None:
    """The values in another type, as they are stored; None if it has not all of them."""
    array, actual = tensor.array, tensor.dtype
    if array is None or actual == dtype or (dtype, actual) == ("bfloat16", "uint16"):
        return array
    if actual == "bfloat16":
        # The upper half of a float32.
        array = (array.astype(np.uint32) << 16).view(np.float32).reshape(tensor.shape)
    if dtype == "bfloat16":
        narrow = converted(array, np.dtype(np.float32))
        if narrow is None or isinstance(narrow, Lost) or (narrow.view(np.uint32) & 0xFFFF).any():
            return None
        return bits_of_bfloat16(narrow)
    result = converted(array, DTYPES[dtype].storage) if dtype in DTYPES else None
    return None if isinstance(result, Lost) else result


def _equal(one: Tensor, other: Tensor) -> bool:
    if one[:2] != other[:2] or one.array is None or other.array is None:
        return False
    return one.array is other.array or np.array_equal(one.array, other.array, equal_nan=one.array.dtype.kind == "f")


def _name(name: str) -> str:
    return f"`{shown.value(name)[1:-1]}`"


def _differing(name: str, given: object, own: object) -> str:
    def plain(what: object) -> str:
        return str(list(what[:8])) if isinstance(what, tuple) else str(what)[:20]

    return f"{_name(name)} {plain(given)} in place of {plain(own)}"
