"""Work that is not needed at every run, moved into a branch of an If."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

__all__ = ["move_into_branch"]


def move_into_branch(graph: ir.Graph, condition: ir.Value, marks: Sequence[ir.Node]) -> None:
    """Compute some tensors only where a condition holds; elsewhere they are zeros.

    Args:
        graph: Changed in place.
        condition: A boolean scalar of the graph.
        marks: Identity nodes whose inputs are the tensors, of static shape and known type. What only these nodes need
            goes into the branch, and they are replaced by the results of the If.
    """
    inside = _only_for(graph, marks)
    then, otherwise = ir.Graph([], [], nodes=[], name="then"), ir.Graph([], [], nodes=[], name="otherwise")
    sources = [mark.inputs[0] for mark in marks]
    for node in inside:
        graph.remove(node)
        then.append(node)
    branch = ir.Node("", "If", [condition], num_outputs=len(marks), name=marks[0].name)
    for mark, source, result in zip(marks, sources, branch.outputs, strict=True):
        value = mark.outputs[0]
        name = value.name
        # An output of its own for each, since two marks may stand for one tensor and a tensor may come from outside.
        last = ir.Node("", "Identity", [source], num_outputs=1)
        then.append(last)
        otherwise.extend(_zeros(value, f"{name}/otherwise"))
        for output, suffix in ((last.outputs[0], "then"), (otherwise[-1].outputs[0], "otherwise")):
            output.name, output.type, output.shape = f"{name}/{suffix}", value.type, value.shape
        then.outputs.append(last.outputs[0])
        otherwise.outputs.append(otherwise[-1].outputs[0])
        result.type, result.shape = value.type, value.shape
        value.replace_all_uses_with(result, replace_graph_outputs=True)
        value.name, result.name = None, name
        graph.remove(mark)
    branch.attributes.add(ir.AttrGraph("then_branch", then))
    branch.attributes.add(ir.AttrGraph("else_branch", otherwise))
    graph.append(branch)
    graph.sort()


def _only_for(graph: ir.Graph, marks: Sequence[ir.Node]) -> list[ir.Node]:
    """The nodes, in graph order, that nothing but the marks needs."""
    inside: set[ir.Node] = set()
    allowed = set(marks)
    found = []
    for node in reversed(graph):
        users = [use.node for value in node.outputs for use in value.uses()]
        kept = any(value.is_graph_output() for value in node.outputs)
        if node not in allowed and users and not kept and all(user in allowed or user in inside for user in users):
            inside.add(node)
            found.append(node)
    return found[::-1]


def _zeros(like: ir.Value, name: str) -> list[ir.Node]:
    if like.shape is None or like.dtype is None or not like.shape.is_static():
        raise ValueError(f"{like.name!r} has no static shape and type")
    shape = ir.tensor(np.asarray(like.shape.numpy(), np.int64))
    target = ir.Node("", "Constant", [], [ir.AttrTensor("value", shape)], num_outputs=1)
    target.outputs[0].name = f"{name}.shape"
    zero = ir.AttrTensor("value", ir.tensor(np.zeros(1, like.dtype.numpy())))
    return [target, ir.Node("", "ConstantOfShape", [target.outputs[0]], [zero], num_outputs=1)]
