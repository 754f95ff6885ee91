"""Writing a graph out at another place: the nodes of a body among those of the graph under construction."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from edgeopt.tracing.array import Array
from edgeopt.tracing.inference import infer
from edgeopt.tracing.tracer import Tracer

__all__ = ["inline"]

_Copies = dict[ir.Value, ir.Value]


def inline(tracer: Tracer, graph: ir.Graph, arguments: Sequence[Array]) -> list[Array]:
    """Append copies of a graph's nodes, with types inferred anew from the arguments'.

    Args:
        tracer: Records the copies, under new names.
        graph: A body, or any graph whose other tensors can be reached from the tracer's.
        arguments: What stands for the graph's inputs.

    Returns:
        The outputs.
    """
    copies: _Copies = {
        value: argument.value for value, argument in zip(graph.inputs, arguments, strict=True)
    }  # what is not in here comes from outside and stays
    return [tracer.wrap(value) for value in _copy(tracer, graph, copies)]


def _copy(tracer: Tracer, graph: ir.Graph, copies: _Copies) -> list[ir.Value]:
    for value in graph.initializers.values():
        if value.const_value is not None and value not in copies:
            copies[value] = tracer.constant(value.const_value.numpy()).value
    for node in graph:
        _copy_node(tracer, node, copies)
    return [copies.get(value, value) for value in graph.outputs]


def _copy_node(tracer: Tracer, node: ir.Node, copies: _Copies) -> None:
    inputs = [None if value is None else copies.get(value, value) for value in node.inputs]
    attributes = []
    for name, attribute in node.attributes.items():
        if attribute.type is ir.AttributeType.GRAPH:
            attribute = ir.AttrGraph(name, _copy_body(tracer, node, attribute.as_graph(), inputs, copies))
        attributes.append(attribute)
    copy = ir.Node(
        node.domain, node.op_type, inputs, attributes, num_outputs=len(node.outputs), metadata_props=node.metadata_props
    )
    inferred = _types(tracer, node, copy)
    for old, new, (kind, shape) in zip(node.outputs, copy.outputs, inferred, strict=True):
        new.type, new.shape = kind, shape
        # An output left out stays so: asking for it may cost.
        new.name = tracer.fresh_name(node.op_type.lower()) if old.name else ""
        copies[old] = new
    copy.name = tracer.fresh_name(node.op_type.lower())
    tracer.graph.append(copy)


def _types(tracer: Tracer, node: ir.Node, copy: ir.Node) -> list[tuple[ir.TypeProtocol | None, ir.Shape | None]]:
    """Inferred where onnx can; those of the original for sequences and for other domains."""
    values = [value for value in (*copy.inputs, *node.outputs) if value is not None and value.name]
    if node.domain or not all(value.type is None or isinstance(value.type, ir.TensorType) for value in values):
        return [(value.type, value.shape) for value in node.outputs]
    inferred = zip(node.outputs, infer(copy, tracer.opset), strict=True)
    # Branches may differ in rank where only one of them is ever taken; then the file knows more.
    return [(ir.TensorType(dtype), value.shape if shape is None else shape) for value, (dtype, shape) in inferred]


def _copy_body(
    tracer: Tracer, node: ir.Node, body: ir.Graph, inputs: Sequence[ir.Value | None], copies: _Copies
) -> ir.Graph:
    inner = tracer.subgraph(body.name or node.op_type.lower())
    for value in body.inputs:
        copies[value] = ir.Value(name=tracer.fresh_name(value.name or "input"), type=value.type, shape=value.shape)
        inner.graph.inputs.append(copies[value])
    _refine_inputs(node, inputs, inner.graph.inputs)
    for result in _copy(inner, body, copies):
        inner.result(inner.wrap(result))
    return inner.graph


def _refine_inputs(node: ir.Node, inputs: Sequence[ir.Value | None], arguments: Sequence[ir.Value]) -> None:
    """Types that the node's inputs now have, for bodies whose own types were written less exactly or not at all."""
    if node.op_type == "Loop":
        known = [(ir.DataType.INT64, ir.Shape([])), (ir.DataType.BOOL, ir.Shape([]))]
        for argument, (dtype, shape) in zip(arguments, known, strict=False):
            argument.type, argument.shape = ir.TensorType(dtype), shape
    if node.op_type != "Scan":
        return
    count = len(inputs) - node.attributes["num_scan_inputs"].as_int()
    axes = [None] * count + list(node.attributes.get_ints("scan_input_axes", [0] * (len(inputs) - count)))
    for argument, value, axis in zip(arguments, inputs, axes, strict=True):
        if value is None or value.type is None or value.shape is None:
            continue
        dims = list(value.shape)
        if axis is not None:
            del dims[int(axis) % len(dims)]
        argument.type, argument.shape = value.type, ir.Shape(dims)
