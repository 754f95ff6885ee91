"""Which nodes draw random numbers."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["RANDOM_OPERATORS", "is_random"]

# Two of these are never the same value, however equal they look.
RANDOM_OPERATORS = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)


def is_random(node: ir.Node) -> bool:
    """Whether a node draws random numbers; a Dropout does in training mode only."""
    if node.domain or node.op_type not in RANDOM_OPERATORS:
        return False
    if node.op_type != "Dropout":
        return True
    training = node.inputs[2] if len(node.inputs) > 2 else None
    tensor = None if training is None else ir.convenience.get_const_tensor(training)
    return tensor is not None and bool(tensor.numpy())
