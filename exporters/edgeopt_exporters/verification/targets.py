"""Targets for a loss that is checked: values of the right type and shape that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeopt_exporters.verification.reference import Arrays
from edgeopt_runtime.manifest import InputSpec, OutputSpec

__all__ = ["sizes_of", "targets"]


#: The size of a dimension that targets have for themselves.
_OWN = 2


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
    """Some tries: numbers between zero and one; whole ones of {0, 1}, then 1 alone (a length, say), then 0 alone."""
    rng = np.random.default_rng(0)
    # A dimension that no input or output has, such as the longest sequence of labels, may be of any size.
    shapes = {
        spec.name: tuple(sizes.get(dim, _OWN) if isinstance(dim, str) else dim for dim in spec.shape) for spec in specs
    }
    floats = {
        spec.name: rng.uniform(0.1, 0.9, shapes[spec.name]).astype(spec.dtype)
        for spec in specs
        if spec.dtype.startswith("float")
    }
    for low, high in ((0, 2), (1, 2), (0, 1)):
        labels = {
            spec.name: rng.integers(low, high, shapes[spec.name]).astype(spec.dtype)
            for spec in specs
            if spec.name not in floats
        }
        yield {**floats, **labels}
        if not labels:
            return
