"""The logarithm of a sigmoid in one piece.

ONNX Runtime's Sigmoid is 0 below -18 and right to 6e-8 elsewhere, so that its logarithm is wrong from -10 on and soon
-∞, where -softplus(-x) is right for every x; so is the derivative. Pairwise ranking losses are written apart.
"""

from __future__ import annotations

import onnx_ir as ir

from edgeopt.tracing import Tracer, op
from edgeopt.tracing.rewriting import replace_node
from edgeopt.tracing.site import Site

__all__ = ["join_log_sigmoid"]


def join_log_sigmoid(graph: ir.Graph) -> None:
    """Replace each Log of a Sigmoid by -Softplus(-x), in place."""
    tracer, replaced = Tracer(graph), False
    for node in list(graph):
        sigmoid = node.inputs[0].producer() if node.op_type == "Log" and node.inputs[0] is not None else None
        if sigmoid is None or node.domain or sigmoid.domain or sigmoid.op_type != "Sigmoid":
            continue
        x = Site(tracer, sigmoid).x
        if x.value.dtype is not None and x.value.shape is not None:
            replace_node(tracer, node, -op.Softplus(-x))
            replaced = True
    if replaced:
        graph.sort()
