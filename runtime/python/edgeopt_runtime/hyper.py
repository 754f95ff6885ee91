"""Hyperparameters: numbers that the graphs read at each step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.errors import HyperparameterError
from edgeopt_runtime.manifest import Hyperparameter
from edgeopt_runtime.tensors import aligned_empty

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Hyperparameters"]


class Hyperparameters:
    """The current values, in arrays of shape ``()`` whose memory the graphs read.

    Args:
        specs: Names, types and first values.
    """

    def __init__(self, specs: Sequence[Hyperparameter]) -> None:
        self._specs = tuple(specs)
        self._ranges = {spec.name: spec.range for spec in specs}
        self.arrays: dict[str, NDArray[Any]] = {}
        for spec in specs:
            self.arrays[spec.name] = aligned_empty((), DTYPES[spec.dtype].storage)
            self.arrays[spec.name][...] = spec.default

    def values(self) -> dict[str, float]:
        """The current values by full name."""
        return {name: array.item() for name, array in self.arrays.items()}

    def specs(self) -> tuple[Hyperparameter, ...]:
        """The specs with the current values as defaults, for a bundle that resumes with them."""
        return tuple(replace(spec, default=self.arrays[spec.name].item()) for spec in self._specs)

    def set(self, values: Mapping[str, float]) -> None:
        """Set some values by full name or by an unambiguous last component (``lr`` for ``schedule.lr``).

        Nothing is set if one of them is wrong.

        Raises:
            HyperparameterError: A name is unknown or ambiguous, or a value is not a finite number of the type, or not
                in its range.
        """
        resolved = {self._resolve(name): value for name, value in values.items()}
        if len(resolved) != len(values):
            raise HyperparameterError(f"A hyperparameter is named twice: {', '.join(values)}.")
        checked = [(self.arrays[name], self._check(name, value)) for name, value in resolved.items()]
        for array, value in checked:
            array[...] = value

    def _resolve(self, name: str) -> str:
        if name in self.arrays:
            return name
        matches = [full for full in self.arrays if full.rpartition(".")[2] == name]
        if len(matches) > 1:
            raise HyperparameterError(f"`{name}` may mean {' or '.join(matches)}; give the full name.")
        if not matches:
            raise HyperparameterError(
                f"The bundle has no hyperparameter `{name}`; it has {', '.join(self.arrays) or 'none'}. Others are "
                "fixed at export, and so are terms that were left out for being 0 there: export with the number above "
                "0 to change it on the device."
            )
        return matches[0]

    def _check(self, name: str, value: float) -> float:
        array = self.arrays[name]
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise HyperparameterError(f"`{name}` must be a number, not {value!r}.") from error
        largest = _largest(array)
        if not math.isfinite(number) or abs(number) > largest:
            raise HyperparameterError(f"`{name}` must be a finite {array.dtype}, not {value!r}.")
        allowed = self._ranges[name]
        if allowed is not None and not (number in allowed and array.dtype.type(number).item() in allowed):
            raise HyperparameterError(f"`{name}` must be {allowed}, not {value!r}.")
        if array.dtype.kind in "iu" and (number != int(number) or (array.dtype.kind == "u" and number < 0)):
            raise HyperparameterError(f"`{name}` must be a whole number of type {array.dtype}, not {value!r}.")
        return number


def _largest(array: NDArray[Any]) -> float:
    return float(np.finfo(array.dtype).max if array.dtype.kind == "f" else np.iinfo(array.dtype).max)
