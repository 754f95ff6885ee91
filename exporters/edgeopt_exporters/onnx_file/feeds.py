"""Inputs for a trial: the examples where there are some, made up otherwise, at any sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from edgeopt.tracing import to_numpy_dtype
from edgeopt.tracing.shapes import Dim, from_ir

__all__ = ["KINDS", "Feeds", "Kind"]

# What is made up, in order of preference: a file may want positive numbers, or take no index but zero.
Kind: TypeAlias = Literal["lively", "positive", "plain"]
KINDS: tuple[Kind, ...] = ("lively", "positive", "plain")


@dataclass(frozen=True)
class Feeds:
    """Makes the inputs of a file.

    Attributes:
        dims: Of each input, sizes and names of its dimensions.
        dtypes: Of each input.
        examples: Of some of them.
        fixed: Of inputs that never change.
        declared: Sizes that the file has where the caller has a name.
    """

    dims: Mapping[str, tuple[Dim, ...]]
    dtypes: Mapping[str, np.dtype[Any]]
    examples: Mapping[str, NDArray[Any]]
    fixed: Mapping[str, NDArray[Any]]
    declared: Mapping[str, int]

    @classmethod
    def of(
        cls,
        graph: ir.Graph,
        examples: Mapping[str, Any],
        fixed: Mapping[str, NDArray[Any]],
        declared: Mapping[str, int],
    ) -> Feeds | None:
        """Those of a graph; None where an input is no tensor of numbers, or of unknown rank."""
        dims, dtypes = {}, {}
        for value in graph.inputs:
            tensor = isinstance(value.type, ir.TensorType) and value.shape is not None
            if not tensor or value.dtype is None or value.dtype is ir.DataType.STRING:
                return None
            name = value.name or ""
            dims[name] = from_ir(value.shape) if value.shape is not None else ()
            dtypes[name] = to_numpy_dtype(value.dtype)
        arrays = {name: np.asarray(example).astype(dtypes[name]) for name, example in examples.items()}
        return cls(dims, dtypes, arrays, fixed, declared)

    @property
    def names(self) -> list[str]:
        """Symbolic dimensions, in the order in which they occur."""
        return list(dict.fromkeys(dim for dims in self.dims.values() for dim in dims if isinstance(dim, str)))

    @property
    def of_axis_0(self) -> set[str]:
        """Symbolic dimensions that are the first one of an input."""
        return {dims[0] for dims in self.dims.values() if dims and isinstance(dims[0], str)}

    @property
    def known(self) -> dict[str, int]:
        """The sizes that symbolic dimensions have in the examples, or in the file."""
        sizes = dict(self.declared)
        for name, example in self.examples.items():
            for dim, size in zip(self.dims[name], example.shape, strict=True):
                if isinstance(dim, str):
                    sizes.setdefault(dim, size)
        return sizes

    def make(self, sizes: Mapping[str, int], kind: Kind, batch: int | None = None) -> dict[str, NDArray[Any]]:
        """Every input, in which the symbolic dimensions have these sizes, and axis 0 that of the batch."""
        made = dict(self.fixed)
        for seed, (name, dims) in enumerate(self.dims.items()):
            shape = [sizes[dim] if isinstance(dim, str) else int(dim or 0) for dim in dims]
            if batch is not None and shape:
                shape[0] = batch
            example = self.examples.get(name)
            random = np.random.default_rng(seed)
            if example is not None and (kind == "plain" or _varies(example)):
                made[name] = _resized(example, shape)
            else:
                made[name] = _drawn(random, shape, self.dtypes[name], kind, example)
        return made


def _varies(example: NDArray[Any]) -> bool:
    """Whether an example is more than a placeholder, which would hide what becomes of its elements."""
    return bool(example.size and (example != example.flat[0]).any())


def _drawn(
    random: np.random.Generator, shape: Sequence[int], dtype: np.dtype[Any], kind: Kind, example: NDArray[Any] | None
) -> NDArray[Any]:
    if dtype.kind == "b":
        return np.asarray(random.integers(0, 2, shape) > 0 if kind == "lively" else np.ones(shape, np.bool_))
    if dtype.kind in "iu":
        if kind != "lively":
            return np.full(shape, 0 if example is None or not example.size else example.flat[0], dtype)
        return random.integers(0, 2, shape).astype(dtype)
    drawn = random.uniform(0.0, 1.0, shape) if kind == "positive" else random.standard_normal(shape)
    return np.asarray(drawn).astype(dtype)


def _resized(example: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
    """The example again and again along each axis, each time turned by one element: no two rows are the same."""
    if list(example.shape) == list(shape) or not example.size:
        return example if list(example.shape) == list(shape) else np.zeros(shape, example.dtype)
    grown = example
    for axis, size in enumerate(shape):
        pieces = [np.roll(grown, turn, axis=-1) for turn in range(-(-size // grown.shape[axis]))]
        grown = np.concatenate(pieces, axis).take(range(size), axis) if pieces else grown.take([], axis)
    return grown
