"""Which integer tensors carry a gradient: those between QuantizeLinear and DequantizeLinear.

Rounding has no derivative worth following; the straight-through rule passes it as the identity. The cotangent of a
quantized tensor is a float tensor, that of the numbers which its integers are.
"""

from __future__ import annotations

from collections.abc import Container

import onnx_ir as ir

__all__ = ["is_quantized", "stays_quantized"]

# What exporters and optimizers put between the two; their rules look at shapes only.
_MOVES = frozenset(
    {
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Identity",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)


def stays_quantized(node: ir.Node, dependent: Container[ir.Value | None]) -> bool:
    """Whether a node's integer outputs carry on what its inputs do: it quantizes, or moves what was quantized."""
    if node.domain:
        return False
    return node.op_type == "QuantizeLinear" or (
        node.op_type in _MOVES and any(value in dependent for value in node.inputs)
    )


def is_quantized(value: ir.Value) -> bool:
    """Of tensors that carry a gradient: whether it is in another type than they are."""
    return value.dtype is not None and (not value.dtype.is_floating_point() or value.dtype.bitwidth <= 8)
