"""Reshape targets that are computed from shapes at run time, written as constants where they can be.

A Reshape may copy a dimension (0) and infer one (-1). With dimensions that have names this is enough for most of what
exporters spell out as Shape, Gather, Mul and Concat nodes, each of which costs a kernel launch at every step.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgeopt.tracing.shapes import Shape, from_ir, same_dim

__all__ = ["make_reshapes_static"]


def make_reshapes_static(graph: ir.Graph) -> None:
    """Replace computed Reshape targets in place; what computed them is left for dead-code removal."""
    for node in list(graph):
        if node.op_type != "Reshape" or len(node.inputs) < 2:
            continue
        data, target, result = node.inputs[0], node.inputs[1], node.outputs[0]
        if data is None or target is None or ir.convenience.get_const_tensor(target) is not None:
            continue
        if data.shape is None or result.shape is None:
            continue
        static = _target(from_ir(data.shape), from_ir(result.shape))
        if static is None:
            continue
        tensor = ir.tensor(np.asarray(static, np.int64))
        constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], num_outputs=1)
        constant.outputs[0].name = f"{result.name}.shape"
        constant.outputs[0].const_value = tensor
        constant.outputs[0].type, constant.outputs[0].shape = ir.TensorType(ir.DataType.INT64), ir.Shape([len(static)])
        graph.insert_before(node, constant)
        node.replace_input_with(1, constant.outputs[0])
        node.attributes.pop("allowzero", None)


def _target(before: Shape, after: Shape) -> list[int] | None:
    """The target with 0 for a copied and -1 for the one inferred dimension; None where that does not say it all."""
    if 0 in after:
        return None
    target = []
    for axis, dim in enumerate(after):
        if isinstance(dim, int):
            target.append(dim)
        elif axis < len(before) and same_dim(before[axis], dim):
            target.append(0)
        else:
            target.append(-1)
    return target if target.count(-1) <= 1 else None
