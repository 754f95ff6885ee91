"""Named arrays as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeopt.errors import SignatureError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Layout"]


class Layout:
    """Where each array is in the vector of all of them, one after the other.

    The vector is float64, so that small steps of float32 variables add up.

    Args:
        tensors: Arrays by name, of which names, shapes and types count.
        what: What they are, for messages.

    Raises:
        SignatureError: There are none, or one is not of floating point.
    """

    def __init__(self, tensors: Mapping[str, Any], what: str) -> None:
        if not isinstance(tensors, Mapping) or not tensors:
            raise SignatureError(f"`{what}` must be arrays by name, at least one, not {tensors!r}.")
        self._what = what
        self._like = {name: np.asarray(value) for name, value in tensors.items()}
        if wrong := [name for name, array in self._like.items() if array.dtype.kind != "f"]:
            dtype = self._like[wrong[0]].dtype
            raise SignatureError(f"`{what}` must be floating-point numbers, but {wrong[0]!r} is {dtype}.")
        ends = np.cumsum([array.size for array in self._like.values()]).tolist()
        self._slices = [slice(end - array.size, end) for end, array in zip(ends, self._like.values(), strict=True)]
        self.size: int = ends[-1]

    def pack(self, tensors: Mapping[str, Any], source: str) -> NDArray[np.float64]:
        """A new vector of arrays that have these names and shapes.

        Raises:
            SignatureError: A name or shape differs; the message says that `source` gave it.
        """
        if tensors.keys() != self._like.keys():
            raise SignatureError(f"{source} has {sorted(tensors)}, but `{self._what}` has {sorted(self._like)}.")
        vector = np.empty(self.size)
        for (name, like), place in zip(self._like.items(), self._slices, strict=True):
            array = np.asarray(tensors[name])
            # A single number may come with axes of length one or without.
            if array.shape != like.shape and not array.size == math.prod(like.shape) == 1:
                raise SignatureError(
                    f"{source} has shape {array.shape} for {name!r}, but `{self._what}` has {like.shape}."
                )
            vector[place] = array.reshape(-1)
        return vector

    def unpack(self, vector: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """New arrays by name, in the types of the variables."""
        return {
            name: vector[place].reshape(like.shape).astype(like.dtype)
            for (name, like), place in zip(self._like.items(), self._slices, strict=True)
        }
