"""Graphs, functions and models made by tracing array programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from edgeopt.tracing.array import Array, to_ir_dtype
from edgeopt.tracing.shapes import Shape, to_ir
from edgeopt.tracing.tracer import DOMAIN, IR_VERSION, OPSET, Tracer

__all__ = ["new_graph", "new_model", "trace_function"]


def new_graph(name: str) -> ir.Graph:
    """An empty graph of the standard domain."""
    return ir.Graph([], [], nodes=[], name=name, opset_imports={"": OPSET})


def new_model(graph: ir.Graph, functions: Sequence[ir.Function] = ()) -> ir.Model:
    """A model around a graph, at the IR version that the oldest supported runtime reads."""
    if functions:
        graph.opset_imports[DOMAIN] = 1
    return ir.Model(graph, ir_version=IR_VERSION, producer_name="edgeopt", functions=list(functions))


def trace_function(
    name: str,
    inputs: Mapping[str, tuple[Any, Shape]],
    body: Callable[[dict[str, Array]], Mapping[str, Array]],
    attributes: Sequence[str] = (),
) -> ir.Function:
    """Record an array program as a model-local function of the domain `edgeopt`.

    Args:
        name: The function's name, which is also the name of the operator it stands for.
        inputs: dtype and shape of each input, in the order of the function's signature.
        body: Called with the inputs by name; returns the outputs by name, in order.
        attributes: Names of the node's attributes. The plain body does not read them: they tell a native kernel which
            variant it stands for.
    """
    graph = ir.Graph(
        [
            ir.Value(name=key, type=ir.TensorType(to_ir_dtype(dtype)), shape=to_ir(shape))
            for key, (dtype, shape) in inputs.items()
        ],
        [],
        nodes=[],
        name=name,
        opset_imports={"": OPSET},
    )
    tracer = Tracer(graph)
    outputs = body({key: tracer.wrap(value) for key, value in zip(inputs, graph.inputs, strict=True)})
    for key, array in outputs.items():
        tracer.output(array, key)
    declared = [ir.Attr(attribute, ir.AttributeType.UNDEFINED, None) for attribute in attributes]
    return ir.Function(DOMAIN, name, graph=graph, attributes=declared)
