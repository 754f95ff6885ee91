"""Weights kept in few bits: what a stored constant stands for, and how an array becomes one.

Three ways, told apart by what an `Encoded` has:

- codes alone are the numbers themselves in a narrower type (float16);
- codes and scales are whole numbers times the scale of their channel (int8), ``w = code * scale``, a scale being the
  channel's largest magnitude over 127;
- with a table, codes lie two in a byte, the first in the upper half, and ``w = table[code] * scale``, with a scale for
  each block of so many numbers in row-major order: its largest magnitude. Source of blocks and of the table of normal
  quantiles: Dettmers et al., "QLoRA: efficient finetuning of quantized LLMs" (arXiv:2305.14314).

The graphs compute the same from the same parts, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeopt_runtime.dtypes import DTYPES
from edgeopt_runtime.manifest import Encoded, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LARGEST_CODE", "decoded", "encoded", "parts_fit"]

#: Of int8; -128 is left out, so that the codes are symmetric.
LARGEST_CODE = 127


def decoded(entry: Encoded, spec: TensorSpec, parts: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The weight that the parts stand for."""
    codes, dtype = parts[entry.codes], DTYPES[spec.dtype].storage
    if entry.scales is None:
        return codes.astype(dtype)
    scales = parts[entry.scales]
    if not entry.table:
        return np.asarray(codes.astype(dtype) * scales)
    table, flat = np.asarray(entry.table, dtype), codes.reshape(-1)
    values = np.stack([table[flat >> 4], table[flat & 15]], axis=1)
    return np.asarray(values.reshape(-1, entry.block or 1) * scales.reshape(-1, 1)).reshape(spec.shape)


def encoded(entry: Encoded, array: NDArray[Any], specs: Mapping[str, TensorSpec]) -> dict[str, NDArray[Any]]:
    """The parts that come nearest to a weight, in the dtypes and shapes of their specs."""
    codes = specs[entry.codes]
    if entry.scales is None:
        with np.errstate(over="ignore"):
            return {entry.codes: array.astype(DTYPES[codes.dtype].storage)}
    scales = specs[entry.scales]
    if not entry.table:
        axes = tuple(axis for axis, length in enumerate(scales.shape) if length == 1 and array.shape[axis] != 1)
        scale = _not_zero(np.abs(array).max(axis=axes, keepdims=True) / LARGEST_CODE).reshape(scales.shape)
        return {
            entry.codes: np.clip(np.rint(array / scale), -LARGEST_CODE, LARGEST_CODE).astype(np.int8),
            entry.scales: scale.astype(array.dtype),
        }
    rows = array.reshape(-1, entry.block or 1)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    table = np.asarray(entry.table, np.float32)
    # The nearest value; a tie goes to the smaller.
    nearest = np.searchsorted((table[1:] + table[:-1]) / 2, rows / _not_zero(largest), side="left").reshape(-1, 2)
    return {
        entry.codes: (nearest[:, 0] << 4 | nearest[:, 1]).astype(np.uint8).reshape(codes.shape),
        entry.scales: largest.astype(array.dtype).reshape(scales.shape),
    }


def parts_fit(entry: Encoded, spec: TensorSpec, specs: Mapping[str, TensorSpec]) -> bool:
    """Whether the parts have dtypes and sizes from which the weight can be decoded."""
    codes, scales = specs.get(entry.codes), specs.get(entry.scales or "")
    if codes is None or spec.dtype != "float32" or (entry.scales is not None and scales is None):
        return False
    size = math.prod(spec.shape)
    if scales is None:
        return codes.dtype == "float16" and codes.shape == spec.shape and not entry.table
    if scales.dtype != spec.dtype:
        return False
    if not entry.table:
        fits = len(scales.shape) == len(spec.shape) and all(
            length in (1, whole) for length, whole in zip(scales.shape, spec.shape, strict=True)
        )
        return codes.dtype == "int8" and codes.shape == spec.shape and fits
    block = entry.block or 0
    return (
        codes.dtype == "uint8"
        and len(entry.table) == 16
        and block > 0
        and math.prod(codes.shape) * 2 == size
        and math.prod(scales.shape) * block == size
    )


def _not_zero(array: NDArray[Any]) -> NDArray[Any]:
    return np.where(array == 0, np.ones_like(array), array)
