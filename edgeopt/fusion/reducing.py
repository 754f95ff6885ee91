"""Nodes that make one number of all elements."""

from __future__ import annotations

import onnx_ir as ir

from edgeopt.fusion.instructions import REDUCTIONS
from edgeopt.fusion.values import constant, is_vector, same_elements, shape_of, splat

__all__ = ["checked", "reduces"]


def reduces(node: ir.Node) -> int | None:
    """The kind of a reduction of all elements to one number."""
    if node.domain or node.op_type != "ReduceSum" or not is_vector(node.inputs[0]):
        return None
    source, shape = node.inputs[0], shape_of(node.outputs[0])
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    if source is None or source.dtype != ir.DataType.FLOAT or shape is None or any(length != 1 for length in shape):
        return None
    return REDUCTIONS["ReduceSum"] if axes is None or constant(axes) is not None else None


def checked(node: ir.Node) -> tuple[tuple[ir.Value, ...], list[ir.Node]] | None:
    """What a sum of products with zero looks at (`edgeopt/training/graphs/finiteness.py`), and the nodes it takes."""
    if reduces(node) is None:
        return None
    values: dict[ir.Value, None] = {}
    nodes: list[ir.Node] = []
    if not _products(node.inputs[0], values, nodes):
        return None
    # What others read too has to stay.
    inside = {node, *nodes}
    fits = all(use.node in inside for inner in nodes for output in inner.outputs for use in output.uses())
    outputs = any(output.is_graph_output() for inner in nodes for output in inner.outputs)
    return (tuple(values), nodes) if fits and not outputs else None


def _products(value: ir.Value | None, values: dict[ir.Value, None], nodes: list[ir.Node]) -> bool:
    node = None if value is None else value.producer()
    if node is None or node.domain:
        return False
    first, *others = node.inputs
    if node.op_type == "Concat":
        nodes.append(node)
        return all(_products(part, values, nodes) for part in node.inputs)
    if node.op_type == "MatMul" and first is not None and splat(first) == 0.0:
        nodes.append(node)
        return _terminals(others[0], values, nodes)
    if node.op_type == "Mul" and others[0] is not None and splat(others[0]) == 0.0:
        nodes.append(node)
        return _terminals(first, values, nodes)
    return False


def _terminals(value: ir.Value | None, values: dict[ir.Value, None], nodes: list[ir.Node]) -> bool:
    """The values that were put together, in other shapes."""
    if value is None or value.dtype != ir.DataType.FLOAT:
        return False
    node = value.producer()
    alone = len(value.uses()) == 1 and not value.is_graph_output()
    if node is not None and alone and same_elements(node):
        nodes.append(node)
        return _terminals(node.inputs[0], values, nodes)
    if node is not None and alone and node.op_type == "Concat":
        nodes.append(node)
        return all(_terminals(part, values, nodes) for part in node.inputs)
    values[value] = None
    return True
