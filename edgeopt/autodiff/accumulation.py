"""The cotangents of one tensor, added up in the cheapest form.

What a gather or a slice sends back is zero in most places. It need not be made in full where there is something to add
it to: elements are scattered into that, and slices that are all parts of one tensor are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from edgeopt.tracing import Array, op

__all__ = ["accumulate", "scattered_along"]


def accumulate(contributions: Sequence[Array]) -> Array:
    """The sum of at least one array, all of one shape."""
    first = contributions[0]
    if len(contributions) == 1:
        return first
    joined = _joined(contributions)
    if joined is not None:
        return joined
    scattered: list[Array] = []
    dense: list[Array] = []
    for array in contributions:
        (scattered if _scatters_into_zeros(array) else dense).append(array)
    if not dense:
        dense = [scattered.pop(0)]
    total = dense[0]
    if len(dense) > 1:
        # One variadic node reads each contribution once, where a chain of Adds would re-read the partial sums.
        total = first.tracer.emit("Sum" if len(dense) > 2 else "Add", *dense)
    for array in scattered:
        total = _scattered_into(total, array)
    summed: Array = total.with_shape(first.shape)
    return summed


def _scattered_into(total: Array, array: Array) -> Array:
    """The sum of an array and one of scattered elements."""
    node = array.value.producer()
    if node is None:
        return total
    _, indices, updates = node.inputs
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    given = [array.tracer.wrap(value) for value in (indices, updates) if value is not None]
    (found,) = array.tracer.emit(node.op_type, total, *given, outputs=1, **attributes)
    return found


def scattered_along(array: Array, axis: int) -> Array | None:
    """What was scattered along an axis to make an array that is zero elsewhere; None for other arrays."""
    node = array.value.producer()
    if node is None or node.op_type != "ScatterElements" or not _scatters_into_zeros(array):
        return None
    along = node.attributes.get_int("axis", 0)
    updates = node.inputs[2]
    return array.tracer.wrap(updates) if updates is not None and along % array.ndim == axis % array.ndim else None


def _scatters_into_zeros(array: Array) -> bool:
    """Whether an array holds sums of scattered elements, and zeros elsewhere."""
    node = array.value.producer()
    if node is None or node.op_type not in ("ScatterElements", "ScatterND"):
        return False
    return node.attributes.get_string("reduction", "none") == "add" and _is_zero(node.inputs[0])


def _is_zero(value: ir.Value | None) -> bool:
    """Whether a tensor is known to be zero."""
    node = None if value is None else value.producer()
    if node is None:
        return False
    if node.op_type == "ConstantOfShape":
        fill = node.attributes.get("value")
        return fill is None or not fill.as_tensor().numpy().any()
    if node.op_type == "Expand":
        return _is_zero(node.inputs[0])
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return tensor is not None and not tensor.numpy().any()


class _Part(NamedTuple):
    """An array that is zero outside of a stretch of one axis."""

    inside: Array
    axis: int
    before: int
    behind: int


def _joined(contributions: Sequence[Array]) -> Array | None:
    """Parts of one axis that lie one behind the other, as the whole; None for other arrays."""
    parts = [_part(array) for array in contributions]
    found = sorted((part for part in parts if part is not None), key=lambda part: part.before)
    if len(found) < len(parts) or len({part.axis for part in found}) != 1:
        return None
    axis, position = found[0].axis, 0
    length = contributions[0].shape[axis]
    for part in found:
        size = part.inside.shape[axis]
        if part.before != position or not isinstance(size, int):
            return None
        position += size
    if position != length:
        return None
    return op.Concat(*(part.inside for part in found), axis=axis).with_shape(contributions[0].shape)


def _part(array: Array) -> _Part | None:
    node = array.value.producer()
    if node is None or node.op_type != "Pad" or len(node.inputs) != 2 or "mode" in node.attributes:
        return None
    value, lengths = node.inputs
    pads = None if lengths is None else ir.convenience.get_const_tensor(lengths)
    if value is None or pads is None:
        return None
    before, behind = np.split(pads.numpy(), 2)
    axes = np.flatnonzero(before | behind)
    if len(axes) != 1:
        return None
    axis = int(axes[0])
    return _Part(array.tracer.wrap(value), axis, int(before[axis]), int(behind[axis]))
