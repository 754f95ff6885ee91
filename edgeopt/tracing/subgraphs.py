"""Bodies of control flow: which tensors they take from outside, what their node computes, and writing them out again.

A body is a graph of its own inside an attribute of If, Loop or Scan. It may use every tensor of the graphs around it by
name, without declaring it; these are the node's captured tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from edgeopt.errors import TracingError
from edgeopt.tracing import shapes

__all__ = ["all_nodes", "bodies", "captured", "detach", "infer_control_flow", "operands", "remove_unused"]


def bodies(node: ir.Node) -> list[ir.Graph]:
    """The graphs in a node's attributes."""
    found: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            found.append(attribute.as_graph())
        elif attribute.type is ir.AttributeType.GRAPHS:
            found.extend(attribute.as_graphs())
    return found


def all_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """The nodes of a graph and of the bodies inside it."""
    for node in graph:
        yield node
        for body in bodies(node):
            yield from all_nodes(body)


def captured(node: ir.Node) -> tuple[ir.Value, ...]:
    """The tensors from outside that a node's bodies use, each once, in the order of their first use."""
    found: dict[ir.Value | None, None] = {}
    for body in bodies(node):
        inside: set[ir.Value | None] = {None, *body.inputs, *body.initializers.values()}
        for inner in body:
            found.update((value, None) for value in operands(inner) if value not in inside)
            inside.update(inner.outputs)
        found.update((value, None) for value in body.outputs if value not in inside)
    return tuple(value for value in found if value is not None)


def operands(node: ir.Node) -> tuple[ir.Value | None, ...]:
    """A node's inputs, then its captured tensors: everything that its outputs depend on."""
    return (*node.inputs, *captured(node)) if node.attributes else tuple(node.inputs)


def remove_unused(graph: ir.Graph) -> None:
    """Remove, in place, the nodes that reach no output of the graph."""
    outputs = set(graph.outputs)
    unused = []
    for node in reversed(graph):
        if any(value in outputs or value.uses() for value in node.outputs):
            for body in bodies(node):
                remove_unused(body)
            continue
        for body in bodies(node):
            # Otherwise what it captured would still count as used.
            body.outputs.clear()
            remove_unused(body)
        detach(node)
        unused.append(node)
    graph.remove(unused)


def detach(node: ir.Node) -> None:
    """Let a node read nothing any more. It is removed later, with others: each removal looks at all graph outputs."""
    for position in range(len(node.inputs)):
        node.replace_input_with(position, None)


def infer_control_flow(node: ir.Node) -> list[tuple[ir.DataType, ir.Shape | None]] | None:
    """Type and shape of each output of an If, Loop or Scan, from the types inside its bodies; None for other operators.

    Raises:
        TracingError: The type of a body's output is not known.
    """
    if node.op_type == "If":
        branches = bodies(node)
        return [(_dtype(node, ours[0]), _to_ir(_common(*map(_shape, ours)))) for ours in _zip_outputs(branches)]
    if node.op_type not in ("Loop", "Scan"):
        return None
    (body,) = bodies(node)
    if node.op_type == "Loop":
        carried, results = list(node.inputs[2:]), list(body.outputs[1:])
        positions, length = [0] * len(results), None
    else:
        count = len(node.inputs) - node.attributes["num_scan_inputs"].as_int()
        carried, results = list(node.inputs[:count]), list(body.outputs)
        axes = node.attributes.get_ints("scan_output_axes", [0] * (len(results) - count))
        positions = [0] * count + [int(axis) for axis in axes]
        length = _scan_length(node, count)
    found: list[tuple[ir.DataType, ir.Shape | None]] = []
    for position, result in enumerate(results):
        shape = _shape(result)
        if position < len(carried):
            first = carried[position]
            shape = _common(shape, None if first is None else _shape(first))
        elif shape is not None:
            axis = positions[position] % (len(shape) + 1)
            shape = (*shape[:axis], length, *shape[axis:])
        found.append((_dtype(node, result), _to_ir(shape)))
    return found


def _zip_outputs(branches: Sequence[ir.Graph]) -> Iterator[tuple[ir.Value, ...]]:
    return zip(*(branch.outputs for branch in branches), strict=True)


def _scan_length(node: ir.Node, count: int) -> shapes.Dim:
    """The number of steps of a Scan, where one of its scan inputs tells it."""
    axes = node.attributes.get_ints("scan_input_axes", [0] * (len(node.inputs) - count))
    dims: list[shapes.Dim] = []
    for value, axis in zip(node.inputs[count:], axes, strict=True):
        shape = None if value is None else _shape(value)
        if shape:
            dims.append(shape[int(axis) % len(shape)])
    # A number says more than a name, and a name more than nothing.
    return min(dims, key=lambda dim: (dim is None, isinstance(dim, str)), default=None)


def _dtype(node: ir.Node, value: ir.Value) -> ir.DataType:
    if value.dtype is None:
        raise TracingError(f"The type of tensor {value.name!r} in a body of {node.op_type} is not known.")
    return value.dtype


def _shape(value: ir.Value) -> shapes.Shape | None:
    return None if value.shape is None else shapes.from_ir(value.shape)


def _common(*found: shapes.Shape | None) -> shapes.Shape | None:
    """What shapes that one tensor may have agree on."""
    known = [shape for shape in found if shape is not None]
    if len(known) < len(found) or len({len(shape) for shape in known}) > 1:
        return None
    return tuple(dims[0] if len(set(dims)) == 1 else None for dims in zip(*known, strict=True))


def _to_ir(shape: shapes.Shape | None) -> ir.Shape | None:
    return None if shape is None else shapes.to_ir(shape)
