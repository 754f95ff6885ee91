"""Losses and metrics of many batches, which do not depend on how the data is cut into them.

What a batch gives are sums, which are added up in float64. The graph `summary` makes the numbers of them, so that every
runtime reports the same. Bundles of schema version 1 give means and their weights instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnxruntime

from edgeopt_runtime.errors import ExecutionError, GraphError
from edgeopt_runtime.manifest import Signature
from edgeopt_runtime.providers import RUNTIME_ERRORS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeopt_runtime.program import Program

__all__ = ["Summary", "Sums", "Totals", "WeightedMeans"]


class Totals(Protocol):
    """What batches add up to.

    Attributes:
        batches: How many there were.
    """

    batches: int

    def add(self, program: Program, numbers: Mapping[str, float]) -> None:
        """Take in what a run on one batch gave."""

    @property
    def counted(self) -> bool:
        """Whether anything has been counted yet."""

    def result(self) -> dict[str, Any]:
        """The numbers so far, and arrays where a metric is one; NaN where nothing has been counted."""


class Summary:
    """The graph that makes numbers of sums.

    Args:
        signature: What goes in and out of it.
        session: It itself.

    Raises:
        GraphError: The graph's inputs and outputs are not the signature's.
    """

    def __init__(self, signature: Signature, session: onnxruntime.InferenceSession) -> None:
        self.file, self._session = signature.file, session
        self.sums = tuple(port.name for port in signature.inputs)
        self._numbers = [port.name for port in signature.outputs]
        self.shapes = {node.name: node.shape for node in session.get_inputs()}
        found = {node.name: node.type for node in session.get_inputs()}
        given = {node.name for node in session.get_outputs()}
        if found != dict.fromkeys(self.sums, "tensor(double)") or given != set(self._numbers):
            raise GraphError(f"{self.file}: the graph's inputs and outputs differ from the manifest's signature.")
        if not all(isinstance(length, int) for shape in self.shapes.values() for length in shape):
            raise GraphError(f"{self.file}: an input has no fixed shape.")

    def numbers(self, sums: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """The loss and the metrics: floats, and arrays where a metric is one.

        Raises:
            ExecutionError: ONNX Runtime failed.
        """
        try:
            arrays = self._session.run(self._numbers, {name: sums[name] for name in self.sums})
        except RUNTIME_ERRORS as error:
            raise ExecutionError(f"ONNX Runtime failed while running {self.file}: {error}.") from error
        return {
            name: array if np.ndim(array) else float(array) for name, array in zip(self._numbers, arrays, strict=True)
        }


class Sums:
    """Sums of batches, and the numbers that are made of them.

    Args:
        summary: Makes them.
    """

    def __init__(self, summary: Summary) -> None:
        self._summary = summary
        # What a graph does not give stays nothing: metrics of evaluation alone are no sums of training. Numbers are
        # Python's, which add up much faster than arrays without axes.
        self._numbers = {name: 0.0 for name, shape in summary.shapes.items() if not shape}
        self._arrays = {name: np.zeros(shape) for name, shape in summary.shapes.items() if shape}
        self._program: Program | None = None
        self._read: list[tuple[str, NDArray[Any]]] = []
        self._added: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self.batches = 0

    def add(self, program: Program, numbers: Mapping[str, float]) -> None:
        """Take in the sums of one batch."""
        self.batches += 1
        if program is not self._program:
            # Each run of a program writes to the same arrays.
            found, self._program = program.sums, program
            self._read = [(name, found[name]) for name in self._numbers if name in found]
            self._added = [(total, found[name]) for name, total in self._arrays.items() if name in found]
        for name, number in self._read:
            self._numbers[name] += number.item()
        for total, array in self._added:
            total += array

    @property
    def counted(self) -> bool:
        """Whether anything has been counted yet."""
        return any(self._numbers.values()) or any(bool(array.any()) for array in self._arrays.values())

    def result(self) -> dict[str, Any]:
        """The numbers so far."""
        return self._summary.numbers(
            {**{name: np.asarray(each) for name, each in self._numbers.items()}, **self._arrays}
        )


class WeightedMeans:
    """Means of the metrics of ``evaluate``, each weighted by what it counts (samples, tokens, sum of class weights).

    Args:
        signature: That of ``evaluate``; it names the weight of each metric.
    """

    def __init__(self, signature: Signature) -> None:
        self._weights = {port.name: port.weight for port in signature.outputs if port.weight is not None}
        self._sums = dict.fromkeys(self._weights, 0.0)
        self._totals = dict.fromkeys(self._weights, 0.0)
        self.batches = 0

    def add(self, program: Program, numbers: Mapping[str, float]) -> None:
        """Take in the numbers of one batch."""
        self.batches += 1
        for name, weight_name in self._weights.items():
            weight = numbers[weight_name]
            # A batch in which nothing counts has the mean 0/0 and the weight 0.
            if weight:
                self._sums[name] += numbers[name] * weight
                self._totals[name] += weight

    @property
    def counted(self) -> bool:
        """Whether anything has been counted yet."""
        return any(self._totals.values())

    def result(self) -> dict[str, Any]:
        """The means so far; NaN where nothing has been counted."""
        return {
            name: total / self._totals[name] if self._totals[name] else math.nan for name, total in self._sums.items()
        }
