"""Which layer makes the scores, and what stands behind it."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir

from edgeopt.losses import Loss
from edgeopt.training.examining.suitability import maker_of
from edgeopt_exporters.onnx_file.roles import Flow

__all__ = ["Head", "find_head", "logits_before"]

_LAYERS = frozenset({"Conv", "Gemm", "MatMul"})
# Layers too, but none whose place a linear one can take; and what hides which of its parts run.
_OTHERS = frozenset({"ConvTranspose", "GRU", "If", "LSTM", "Loop", "RNN", "Scan"})
# The other operands of these are shapes and the like.
_FORMS = frozenset({"Expand", "Pad", "Reshape", "Slice", "Squeeze", "Tile", "Unsqueeze"})
_UNCHANGED = frozenset({"Cast", "Identity"})


class Head(NamedTuple):
    """The last layer.

    Attributes:
        layer: Its product or convolution.
        features: What it reads.
    """

    layer: ir.Node
    features: ir.Value


def find_head(graph: ir.Graph) -> Head | None:
    """The last layer before the first output, if everything behind it depends on it alone.

    Softmax and other activations, pools and changes of form do, in whatever operators they are written; a sum with
    what bypasses the layer does not.
    """
    flow, order = Flow(graph), {node: place for place, node in enumerate(graph)}
    front = {graph.outputs[0]}
    while front:
        value = max(front, key=lambda each: order.get(each.producer(), -1))  # type: ignore[arg-type]  # None is none
        node = value.producer()
        if node is None or node.op_type in _OTHERS or node.domain not in ("", "ai.onnx"):
            return None
        numbers = node.inputs[:1] if node.op_type in _FORMS else node.inputs
        moved = [operand for operand in numbers if flow.depends(operand)]
        if node.op_type in _LAYERS:
            features = node.inputs[0]
            return Head(node, features) if features is not None and len(front) == 1 and moved == [features] else None
        front -= set(node.outputs)
        front.update(operand for operand in moved if operand is not None)
    return None


def logits_before(graph: ir.Graph, loss: Loss) -> ir.Value | None:
    """What a file's first output makes probabilities of, where a loss reads scores or logits; else None.

    Only if the output is the very result of a Softmax, or for a loss of independent events of a Sigmoid, so that the
    logits have its shape.
    """
    kinds = {"scores": "Softmax", "logits": "Sigmoid"}
    wanted = kinds.get(loss.expects)
    found = None if wanted is None else maker_of(graph.outputs[0], frozenset({wanted}), _UNCHANGED)
    return None if found is None else found[1]
