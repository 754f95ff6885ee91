"""From what a caller has to what a graph takes: names, dtypes and shapes of a batch, checked without a copy."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeopt_runtime import shown
from edgeopt_runtime.conversion import (
    UNREADABLE,
    Lost,
    as_array,
    bits_of_bfloat16,
    converted,
    is_torch_bfloat16,
    place,
    widens,
)
from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.errors import BatchError
from edgeopt_runtime.manifest import InputSpec
from edgeopt_runtime.nesting import flattened, merged

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Batch", "BatchReader", "each_batch"]

# Arrays by name, or in the order of the inputs, or both: (inputs by name, labels).
Batch = Mapping[str, Any] | Sequence[Any]


def each_batch(value: Batch | Iterable[Batch]) -> Iterable[Batch]:
    """The batches in a value that may be one batch or an iterable of batches.

    A mapping is one batch, and so is a list or tuple of arrays; a list or tuple of mappings, lists or tuples, and
    every other iterable, holds batches.
    """
    if isinstance(value, Mapping):
        return [value]
    if isinstance(value, (list, tuple)) and not all(isinstance(part, (Mapping, list, tuple)) for part in value):
        return [value]
    return value


class BatchReader:
    """Turns batches into arrays for one graph.

    Arrays of the right dtype and C-contiguous are passed on as they are; others are copied. An array becomes one of
    another type of the same kind, floating point or whole numbers, if that has all of its values. To a wider type
    (int32 to int64, float16 to float32) that is always so; a narrower one (float64 to float32) is checked batch by
    batch, and a `UserWarning` says once for each input how to do without. Whole numbers never become floating point
    by themselves: images of bytes would come without their normalisation. Plain Python numbers and lists become
    whatever the input needs, if it can hold their values. For bfloat16 inputs, tensors of PyTorch, arrays of the
    bfloat16 type of ml_dtypes or ``uint16`` arrays of the same bits are taken.

    A mapping may be nested as the model's arguments are, and may hold more than the graph takes, which is left alone,
    and said once. A misspelt name is noticed all the same: the input that it should be is missing then.

    Args:
        specs: The inputs the graph takes, in order.
        ignored: Names that a mapping may hold besides without a word, such as the target in a batch given to
            ``predict``.
        said: What warnings were given about, to which more is added; readers that share it say each thing once.
    """

    def __init__(self, specs: Sequence[InputSpec], ignored: Collection[str], said: set[str] | None = None) -> None:
        # Per input, prepared: name, expected storage type, rank, and each axis with its length or symbol.
        self._specs = tuple(specs)
        self._names = frozenset(spec.name for spec in specs)
        self._ignored = frozenset(ignored)
        self._said = set() if said is None else said

    def __call__(self, batch: Batch) -> dict[str, NDArray[Any]]:
        """The arrays of a batch by input name.

        Raises:
            BatchError: An input is missing, has a dtype that cannot become the right one without loss, or the wrong
                shape, or holds a class that there is not.
        """
        values = self._by_name(batch)
        lengths: dict[str, tuple[int, str]] = {}
        arrays = {}
        for spec in self._specs:
            array = _as_array(spec, values[spec.name], self._said)
            _check_shape(spec, array, lengths)
            if spec.classes is not None:
                _check_classes(spec, array, spec.classes)
            arrays[spec.name] = array
        return arrays

    def _by_name(self, batch: Batch) -> Mapping[str, Any]:
        if isinstance(batch, Mapping):
            if batch.keys() != self._names:
                batch = flattened(batch, self._names)
                self._check_names(batch)
            return batch
        if not isinstance(batch, (list, tuple)):
            if len(self._specs) == 1:
                return {self._specs[0].name: batch}
            raise BatchError(
                f"A batch must be a mapping by name, or a tuple or list of {self._listing()}; got {_kind(batch)}."
            )
        by_name = merged(batch, [spec.name for spec in self._specs])
        if by_name is not None:
            self._check_names(by_name)
            return by_name
        if len(batch) != len(self._specs):
            raise BatchError(f"The batch must hold {self._listing()}, but it holds {len(batch)} arrays.")
        return {spec.name: value for spec, value in zip(self._specs, batch, strict=True)}

    def _check_names(self, batch: Mapping[str, Any]) -> None:
        missing = next((spec.name for spec in self._specs if spec.name not in batch), None)
        unknown = [str(name) for name in batch if name not in self._names and name not in self._ignored]
        if missing is not None:
            close = difflib.get_close_matches(missing, unknown, n=1, cutoff=0.7)
            meant = f" Is it `{close[0]}`?" if close else ""
            raise BatchError(
                f"The batch lacks the input `{missing}`.{meant} Give {self._listing()}; got {_names(batch)}."
            )
        new = {name for name in unknown if f"name {name}" not in self._said}
        if new:
            self._said.update(f"name {name}" for name in new)
            warnings.warn(
                f"The batch holds {shown.some(new)}, which nothing here takes: the inputs are {self._listing()}. It is "
                "left alone, here and in later batches.",
                stacklevel=5,
            )

    def _listing(self) -> str:
        count = len(self._specs)
        return f"{count} array{'' if count == 1 else 's'} ({', '.join(spec.name for spec in self._specs)})"


def _as_array(spec: InputSpec, value: Any, said: set[str]) -> NDArray[Any]:
    dtype = DTYPES[spec.dtype].storage
    if isinstance(value, np.ndarray) and value.dtype == dtype and value.flags.c_contiguous:
        return value
    array = _read(spec, value)
    if array.dtype != dtype:
        from_python = isinstance(value, (bool, int, float, list, tuple))
        if _holds(array, dtype) if from_python else _always_fits(spec, array):
            array = array.astype(dtype)
        else:
            array = _converted(spec, array, said)
    # Not np.ascontiguousarray, which would give a scalar an axis.
    return np.asarray(array, order="C")


def _read(spec: InputSpec, value: Any) -> NDArray[Any]:
    """A value as an array of its own type, bfloat16 as the input takes it."""
    if isinstance(value, np.ndarray) and spec.dtype != "bfloat16":
        return value
    try:
        array = as_array(value)
    except UNREADABLE as error:
        raise BatchError(
            f"The input `{spec.name}` cannot be read as an array ({_kind(value)}: {shown.reason(error)}). Give a numpy "
            "array, or what numpy makes one of."
        ) from error
    if spec.dtype == "bfloat16":
        if is_torch_bfloat16(value):
            return bits_of_bfloat16(array)
        if array.dtype.name == "bfloat16":
            return array.view(np.uint16)
    return array


def _always_fits(spec: InputSpec, array: NDArray[Any]) -> bool:
    # Bits that are stored as whole numbers are none.
    return spec.dtype != "bfloat16" and widens(array.dtype, DTYPES[spec.dtype].storage)


def _converted(spec: InputSpec, array: NDArray[Any], said: set[str]) -> NDArray[Any]:
    """The array in the type of the input, which has all of its values."""
    wanted = DTYPES[spec.dtype].storage
    result = None if spec.dtype == "bfloat16" else converted(array, wanted)
    if result is None or isinstance(result, Lost):
        lost = ""
        if result is not None:
            at = f" at {_shape(result.indices)}" if result.indices else ""
            lost = f", and holds {result.value}{at}, which {spec.dtype} has not"
        hint = f"convert it with `.astype({spec.dtype!r})`" if wanted.name == spec.dtype else "convert it"
        raise BatchError(
            f"The input `{spec.name}` must be {spec.dtype}, but is {array.dtype}{lost}: {hint} if that is meant."
        )
    if f"type {spec.name}" not in said:
        said.add(f"type {spec.name}")
        warnings.warn(
            f"The input `{spec.name}` must be {spec.dtype}, but is {array.dtype}. It holds only numbers that "
            f"{spec.dtype} has too, so that it is converted, now and in later batches. Make it {spec.dtype} where the "
            f"data is read, or give `.astype({spec.dtype!r})` of it, and there is nothing to copy and check.",
            stacklevel=5,
        )
    return result


def _holds(array: NDArray[Any], wanted: np.dtype[Any]) -> bool:
    """Whether a type can hold the numbers of an array that numpy made from Python numbers."""
    if wanted.kind == "f":
        return array.dtype.kind in "fiu"
    if wanted.kind in "iu" and array.dtype.kind in "iu" and array.size:
        limits = np.iinfo(wanted)
        return bool(limits.min <= array.min() and array.max() <= limits.max)
    # An empty list is float64 for numpy.
    return array.size == 0 or array.dtype.kind == wanted.kind == "b"


def _check_shape(spec: InputSpec, array: NDArray[Any], lengths: dict[str, tuple[int, str]]) -> None:
    shape = array.shape
    if len(shape) != len(spec.shape):
        raise BatchError(
            f"The input `{spec.name}` must have shape {_shape(spec.shape)}, but has {len(shape)} axes: {_shape(shape)}."
        )
    for axis, (length, wanted) in enumerate(zip(shape, spec.shape, strict=True)):
        if length == wanted:
            continue
        if isinstance(wanted, int):
            raise BatchError(
                f"The input `{spec.name}` must have shape {_shape(spec.shape)}, but has {_shape(shape)}: axis {axis} "
                f"must be {wanted}."
            )
        known, owner = lengths.setdefault(wanted, (length, spec.name))
        if known != length:
            raise BatchError(
                f"The inputs of a batch disagree about `{wanted}`: it is {known} in `{owner}`, but {length} in "
                f"`{spec.name}` (axis {axis} of {_shape(shape)})."
            )


def _check_classes(spec: InputSpec, array: NDArray[Any], classes: int) -> None:
    if not array.size:
        return
    # As unsigned numbers negative ones are large, so that one pass finds all that is wrong.
    unsigned = array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "i" else array
    if unsigned.max() < classes:
        return
    wrong = (array < 0) | (array >= classes)
    if spec.ignored is not None:
        wrong &= array != spec.ignored
    if wrong.any():
        first = place(wrong)
        besides = "" if spec.ignored is None else f", and {spec.ignored} for what is not to count"
        at = f" at {_shape(first)}" if first else ""
        raise BatchError(
            f"The input `{spec.name}` holds {array[first]}{at}, which is no class: there are {classes}, numbered from "
            f"0 to {classes - 1}{besides}. {_renumbering(array, classes, spec.ignored)}"
        )


def _renumbering(array: NDArray[Any], classes: int, ignored: int | None) -> str:
    counted = array[array != ignored] if ignored is not None else array
    if counted.min() == 1 and counted.max() == classes:
        return "These are numbered from 1: subtract 1."
    return "Correct the labels, or export a model with more outputs."


def _shape(shape: Sequence[int | str]) -> str:
    return f"({', '.join(str(length) for length in shape)}{',' if len(shape) == 1 else ''})"


def _names(batch: Mapping[str, Any]) -> str:
    return ", ".join(str(name) for name in batch) or "nothing"


def _kind(value: object) -> str:
    return type(value).__name__
