"""What operators of ONNX Runtime's CPU provider take from the arena while they run, besides their results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import onnx
from onnx import helper

from edgeopt.memory.shapes import Inferred, Shape

__all__ = ["workspace"]

_FLOAT = 4
# Sums of a gate for each step and sequence: of a recurrent layer's input, which all steps are given in one product.
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def workspace(node: onnx.NodeProto, sizes: Mapping[str, Inferred]) -> Sequence[int]:
    """Bytes of each buffer, in the order in which they are asked for.

    Args:
        node: Without bodies.
        sizes: Of its inputs and outputs, as far as they are known.
    """
    rule = _WORKSPACES.get(node.op_type)
    shapes = [sizes[name].shape for name in node.input[:2] if name in sizes]
    if rule is None or len(shapes) < 2 or len(shapes[0]) < 3:
        return []
    result = next((sizes[name].shape for name in node.output if name in sizes), None)
    return rule(node, shapes, result)


def _transposed_convolution(node: onnx.NodeProto, shapes: Sequence[Shape], result: Shape | None) -> Sequence[int]:
    """The product of weights and input, before its columns are added up; of one image."""
    image, (_, out, *kernel) = shapes
    return [_FLOAT * out * math.prod(kernel) * math.prod(image[2:])]


def _convolution(node: onnx.NodeProto, shapes: Sequence[Shape], result: Shape | None) -> Sequence[int]:
    """The windows of one image, side by side."""
    _, channels, *kernel = shapes[1]
    if node.domain == "com.microsoft.nchwc" or result is None or math.prod(kernel) == 1 or channels == 1:
        return []
    return [_FLOAT * channels * math.prod(kernel) * math.prod(result[2:])]


def _recurrent(node: onnx.NodeProto, shapes: Sequence[Shape], result: Shape | None) -> Sequence[int]:
    """For each direction its states, and the gates of all steps; backwards input and output turned round besides."""
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    steps, batch, features = shapes[0]
    gates, directions = _GATES[node.op_type], shapes[1][0]
    hidden = shapes[1][1] // gates
    is_reversed = [False, True] if directions == 2 else [attributes.get("direction") == b"reverse"]
    found: list[int] = []
    for backwards in is_reversed:
        found += [_FLOAT * batch * hidden] * gates
        found.append(_FLOAT * steps * batch * hidden * gates)
        if backwards:
            found += [_FLOAT * steps * batch * features, _FLOAT * steps * batch * hidden]
    return found


_WORKSPACES: dict[str, Callable[[onnx.NodeProto, Sequence[Shape], Shape | None], Sequence[int]]] = {
    "Conv": _convolution,
    "FusedConv": _convolution,
    "ConvTranspose": _transposed_convolution,
    **dict.fromkeys(_GATES, _recurrent),
}
