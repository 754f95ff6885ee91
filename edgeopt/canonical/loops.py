"""Types that the body of a Loop need not declare."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["declare_loop_inputs"]


def declare_loop_inputs(graph: ir.Graph) -> None:
    """Write down that a Loop's first inputs are a number and a truth value, in place: ONNX Runtime asks for it.

    Files may leave the types of a body to be inferred; those of carried values are.
    """
    for node in ir.traversal.RecursiveGraphIterator(graph):
        if node.op_type != "Loop" or node.domain:
            continue
        inputs = node.attributes["body"].as_graph().inputs
        for value, dtype in zip(inputs[:2], (ir.DataType.INT64, ir.DataType.BOOL), strict=True):
            value.type = value.type or ir.TensorType(dtype)
            value.shape = value.shape if value.shape is not None else ir.Shape([])
