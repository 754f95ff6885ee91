"""A value that a caller has as an array of the type that an input or a tensor takes, if that loses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["UNREADABLE", "Lost", "as_array", "bits_of_bfloat16", "converted", "is_torch_bfloat16", "place", "widens"]

# numpy's kinds of numbers between which values may pass.
KINDS = {"f": "f", "i": "i", "u": "i"}


class Lost(NamedTuple):
    """The first value that another type does not have, and where it is."""

    value: Any
    indices: tuple[int, ...]


# What numpy and PyTorch raise about a value that is no array.
UNREADABLE = (TypeError, ValueError, RuntimeError, BufferError, OverflowError)


def as_array(value: Any) -> NDArray[Any]:
    """A value as numpy reads it; a tensor of PyTorch from whatever device, without its gradient.

    A bfloat16 of PyTorch comes as the same numbers in float32, since numpy has no such type.

    Raises:
        TypeError, ValueError, RuntimeError, BufferError, OverflowError: It cannot be read.
    """
    if hasattr(value, "detach"):
        value = value.detach()
        if not str(getattr(value, "device", "cpu")).startswith("cpu"):
            value = value.cpu()
    if is_torch_bfloat16(value):
        value = value.float()
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def widens(actual: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether a conversion keeps every value that there can be, and the kind of number."""
    kinds = actual.kind + wanted.kind
    return kinds in ("ff", "ii", "uu", "ui") and np.can_cast(actual, wanted, "safe")


def converted(array: NDArray[Any], wanted: np.dtype[Any]) -> NDArray[Any] | Lost | None:
    """The array in another type of the same kind (floating point, or whole numbers), which has all of its values.

    Returns:
        The array; or the first value that would be lost; or None if the types are of different kinds.
    """
    if KINDS.get(array.dtype.kind, "") != KINDS.get(wanted.kind, "?"):
        return None
    if widens(array.dtype, wanted):
        return array.astype(wanted)
    # What is too large for the other type becomes infinite, which is found here.
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        result = array.astype(wanted)
        if wanted.kind == "f":
            kept = result.astype(array.dtype) == array
            # NaN stays NaN, and is all that differs from itself.
            lost = ~(kept | np.not_equal(array, array))
        else:
            lost = _beyond(array, np.iinfo(wanted))
    if not lost.any():
        return result
    index = place(lost)
    return Lost(array[index], index)


def place(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """The index of the first true element."""
    return tuple(int(axis) for axis in np.unravel_index(int(np.argmax(mask)), mask.shape))


def is_torch_bfloat16(value: Any) -> bool:
    """Whether it is a tensor of PyTorch in the type that numpy does not have."""
    return str(getattr(value, "dtype", "")) == "torch.bfloat16"


def bits_of_bfloat16(array: NDArray[Any]) -> NDArray[np.uint16]:
    """The bits of numbers that bfloat16 has, which are the upper halves of those of float32."""
    return (np.ascontiguousarray(array).view(np.uint32) >> 16).astype(np.uint16).reshape(array.shape)


def _beyond(array: NDArray[Any], limits: np.iinfo[Any]) -> NDArray[np.bool_]:
    own, beyond = np.iinfo(array.dtype), np.zeros(array.shape, np.bool_)
    # Compared only with limits that the array's own type has: numpy 1 would make floating-point numbers of others.
    if own.max > limits.max:
        beyond |= array > limits.max
    if own.min < limits.min:
        beyond |= array < limits.min
    return beyond
