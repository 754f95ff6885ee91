"""What a constant of a file is: a parameter, a running statistic, or a setting of an operator.

A file does not say. What an operator does with a tensor, and how many elements it has, says it well enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["Role", "Use", "role_of", "uses_of"]

Use = tuple[ir.Node, int]


class Role(Enum):
    """What becomes of a constant."""

    PARAMETER = "trained by default"
    FROZEN = "trained if asked for by name"
    STATISTIC = "part of the state, moved by BatchNormalization in training mode"
    SETTING = "stays a constant of the graph"


# Inputs that are weights even if they have a single element: the bias of one unit, one slope for all channels.
_WEIGHTS: Mapping[str, Sequence[int]] = {
    "BatchNormalization": (1, 2),
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "DeformConv": (1, 3),
    "Einsum": range(8),
    "GRU": (1, 2, 3),
    "Gather": (0,),
    "Gemm": (0, 1, 2),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LSTM": (1, 2, 3, 7),
    "LayerNormalization": (1, 2),
    "MatMul": (0, 1),
    "PRelu": (1,),
    "RMSNormalization": (1,),
    "RNN": (1, 2, 3),
}
_STATISTICS: Mapping[str, Sequence[int]] = {"BatchNormalization": (3, 4)}
# Inputs that say how an operator works, whatever their size.
_SETTINGS: Mapping[str, Sequence[int]] = {
    "Clip": (1, 2),
    "DequantizeLinear": (1,),
    "Dropout": (1,),
    "Equal": (0, 1),
    "Greater": (0, 1),
    "GreaterOrEqual": (0, 1),
    "Less": (0, 1),
    "LessOrEqual": (0, 1),
    "MatMulBnb4": (2,),
    "MatMulNBits": (2,),
    "MelWeightMatrix": range(5),
    "OneHot": (2,),
    "Pad": (2,),
    "QuantizeLinear": (1,),
    "Range": range(3),
    "Resize": (1, 2),
    "STFT": (2,),
    "Upsample": (1,),
}
# Inputs that usually hold what was measured or fixed before training: the mean and deviation of the data, bounds.
_FIXED: Mapping[str, Sequence[int]] = {
    "Div": (0, 1),
    "Max": range(8),
    "Min": range(8),
    "Mod": (0, 1),
    "Pow": (0, 1),
    "Sub": (0, 1),
    "Where": (1, 2),
}
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
# Passing through these, a tensor stays what it is.
_ALIASES = frozenset({"Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
# Masks are written with numbers that no weight has.
_LARGEST_WEIGHT = 1e8


def uses_of(value: ir.Value) -> Iterator[Use]:
    """The nodes that read a tensor, and as which input; through those that only give it another shape."""
    for node, position in value.uses():
        if node.op_type in _ALIASES and position == 0:
            yield from uses_of(node.outputs[0])
        else:
            yield node, position


def role_of(value: ir.Value, array: NDArray[np.generic]) -> Role:
    """The role of a constant with this value."""
    uses = list(uses_of(value))
    if not uses or array.size == 0 or _all_in(uses, _SETTINGS) or not np.isfinite(array.astype(np.float32)).all():
        return Role.SETTING
    if _all_in(uses, _STATISTICS):
        return Role.STATISTIC
    if array.size == 1:
        is_weight = any(position in _WEIGHTS.get(node.op_type, ()) for node, position in uses)
        is_bias = array.ndim > 0 and any(_is_added_to_product(node, position) for node, position in uses)
        return Role.PARAMETER if is_weight or is_bias else Role.SETTING
    if np.abs(array).max() > _LARGEST_WEIGHT:
        return Role.SETTING
    return Role.FROZEN if _all_in(uses, _FIXED, _SETTINGS) else Role.PARAMETER


def _all_in(uses: Sequence[Use], *tables: Mapping[str, Sequence[int]]) -> bool:
    return all(any(position in table.get(node.op_type, ()) for table in tables) for node, position in uses)


def _is_added_to_product(node: ir.Node, position: int) -> bool:
    if node.op_type != "Add":
        return False
    other = node.inputs[1 - position]
    producer = None if other is None else other.producer()
    return producer is not None and producer.op_type in _PRODUCTS
