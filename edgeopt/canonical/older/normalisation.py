"""Normalisations that changed."""

from __future__ import annotations

from typing import Any

from edgeopt.canonical.older.editing import rewritten
from edgeopt.canonical.registry import adapter
from edgeopt.errors import UnsupportedModelError
from edgeopt.tracing import Array, op
from edgeopt.tracing.site import Site


@adapter("BatchNormalization", before=14)
def batch_normalization(n: Site) -> tuple[Array, ...]:
    """Training mode was meant by asking for the running statistics; the batch's own are gone since opset 14."""
    if not n.attr("spatial", 1):
        raise UnsupportedModelError(f"{n}: statistics for each element (spatial=0) were dropped by ONNX in opset 9.")
    node = n.node
    if any(value.uses() or value.is_graph_output() for value in node.outputs[3:]):
        raise UnsupportedModelError(f"{n}: its outputs saved_mean and saved_var do not exist since opset 14.")
    outputs = sum(bool(value.name) for value in node.outputs)
    training: dict[str, Any] = {"training_mode": 1} if outputs > 1 else {}
    node.resize_outputs(3 if training else 1)
    return rewritten(n, *n.inputs, without=("spatial",), **training)


@adapter("GroupNormalization", before=21, typed=True)
def group_normalization(n: Site) -> tuple[Array, ...]:
    """Scale and bias belonged to the groups; now they belong to the channels."""
    groups = int(n.attr("num_groups"))
    channels = n.x.shape[1]
    size = channels // groups if isinstance(channels, int) else None
    if size == 1:
        return rewritten(n, *n.inputs)
    if size is None:
        raise UnsupportedModelError(f"{n}: the number of channels has to be known.")
    # (groups,) to (groups, channels of a group) to (channels,)
    repeated = [
        op.Reshape(op.Expand(op.Unsqueeze(array, [1]), [groups, size]), [-1]).with_shape((channels,))
        for array in (n.input(1), n.input(2))
    ]
    return rewritten(n, n.x, *repeated)
