"""What a tensor is computed from, and whether a gradient would find its way back there."""

from __future__ import annotations

import onnx_ir as ir

from edgeopt.autodiff.engine import is_stopped
from edgeopt.autodiff.quantized import stays_quantized
from edgeopt.autodiff.registry import ZERO_DERIVATIVE, qualified_name
from edgeopt.tracing.subgraphs import operands

__all__ = ["origins"]

# Of these the derivative is zero, but there is one: PyTorch returns zeros, and its optimizers go on with them.
_ZEROS = frozenset({"Ceil", "Floor", "Round", "Sign"})


def origins(value: ir.Value, *, along_gradients: bool) -> set[ir.Value]:
    """A tensor and all that it is computed from.

    Args:
        value: The tensor.
        along_gradients: Whether to go back only where PyTorch's gradients go: not past what is detached, whole numbers,
            shapes, comparisons and random numbers. It is a matter of structure; a gradient may be zero everywhere.
    """
    found: set[ir.Value] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if current in found:
            continue
        found.add(current)
        node = current.producer()
        if node is not None and not (along_gradients and _stops(node, current)):
            waiting.extend(operand for operand in operands(node) if operand is not None)
    return found


def _stops(node: ir.Node, result: ir.Value) -> bool:
    name = qualified_name(node)
    if is_stopped(node) or (name in ZERO_DERIVATIVE and name not in _ZEROS):
        return True
    whole = result.dtype is not None and not result.dtype.is_floating_point()
    return whole and not stays_quantized(node, node.inputs)
