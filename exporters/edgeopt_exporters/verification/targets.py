"""Targets for a loss that is checked: values of the right type and shape that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeopt_exporters.verification.reference import Arrays
from edgeopt_runtime.manifest import InputSpec, OutputSpec

__all__ = ["sizes_of", "targets"]


def sizes_of(specs: Sequence[InputSpec | OutputSpec], arrays: Arrays) -> dict[str, int]:
    """The size of each symbolic dimension, read off arrays that have it."""
    return {
        dim: size
        for spec in specs
        if spec.name in arrays
        for dim, size in zip(spec.shape, np.shape(arrays[spec.name]), strict=False)
        if isinstance(dim, str)
    }


def targets(specs: Sequence[InputSpec], sizes: Mapping[str, int]) -> Iterator[dict[str, NDArray[Any]]]:
    """Some tries: numbers between zero and one, and labels of the first two classes, then of the first alone.

    Raises:
        KeyError: A dimension of a target is one of no input or output.
    """
    rng = np.random.default_rng(0)
    shapes = {spec.name: tuple(sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape) for spec in specs}
    floats = {
        spec.name: rng.uniform(0.1, 0.9, shapes[spec.name]).astype(spec.dtype)
        for spec in specs
        if spec.dtype.startswith("float")
    }
    for classes in (2, 1):
        labels = {
            spec.name: rng.integers(0, classes, shapes[spec.name]).astype(spec.dtype)
            for spec in specs
            if spec.name not in floats
        }
        yield {**floats, **labels}
        if not labels:
            return
