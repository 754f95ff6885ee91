"""What every storage format provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from edgeopt import tracing
from edgeopt.array_types import Array, Namespace

__all__ = ["Format", "Parts"]

#: What is kept of an array, by name.
Parts: TypeAlias = Mapping[str, Array]


class Format(ABC):
    """Keeps a floating-point array as other arrays, its parts.

    `encode` and `decode` are array programs: they run under numpy, PyTorch and the tracer. They compute in the dtype of
    the array, which is float32 or float64; sixteen bits would not hold the scales.
    """

    @property
    def draws(self) -> bool:
        """Whether `encode` needs random numbers."""
        return False

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether arrays of this shape can be kept so."""
        return True

    @abstractmethod
    def encode(self, xp: Namespace, array: Array, uniform: Array | None = None) -> dict[str, Array]:
        """The parts of an array.

        Args:
            xp: The namespace of the array.
            array: A finite array.
            uniform: Where `draws`, independent numbers from [0, 1) in the shape of the array.
        """

    @abstractmethod
    def decode(self, xp: Namespace, parts: Parts, shape: tuple[int, ...], dtype: Any) -> Array:
        """The array that was encoded, up to what the format loses.

        Args:
            xp: The namespace of the parts.
            parts: What `encode` gave.
            shape: The shape of the array.
            dtype: Its type, as `xp` names it.
        """

    def first(self, array: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """The parts of a numpy array that training begins with; nothing is random about them."""
        uniform = np.full(array.shape, 0.5, array.dtype) if self.draws else None
        # The tracer's functions compute at once where nothing is traced.
        return {name: np.asarray(part) for name, part in self.encode(tracing, array, uniform).items()}

    def bits(self, shape: tuple[int, ...], dtype: Any = np.float32) -> float:
        """How many bits an element takes, scales included."""
        parts = self.first(np.zeros(shape, dtype))
        return 8.0 * sum(part.nbytes for part in parts.values()) / max(1, int(np.prod(shape)))
