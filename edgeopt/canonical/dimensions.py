"""Dimensions that say nothing: exporters write "?", -1 or nothing at all for sizes they do not know."""

from __future__ import annotations

import onnx_ir as ir

from edgeopt.tracing.subgraphs import all_nodes

__all__ = ["is_unknown", "name_dimensions"]


def name_dimensions(graph: ir.Graph) -> None:
    """Give each unknown dimension of an input a name of its own, and forget what looks like a name elsewhere.

    Two dimensions called "?" are not equal for that.
    """
    for value in graph.inputs:
        if value.shape is not None:
            dims = [f"{value.name}_dim_{axis}" if is_unknown(dim) else dim for axis, dim in enumerate(value.shape)]
            value.shape = ir.Shape(dims)
    for node in all_nodes(graph):
        for value in node.outputs:
            if value.shape is not None and any(map(is_unknown, value.shape)):
                value.shape = ir.Shape([None if is_unknown(dim) else dim for dim in value.shape])


def is_unknown(dim: int | str | ir.SymbolicDim | None) -> bool:
    """Whether a dimension is neither a size nor a name."""
    if isinstance(dim, int):
        return dim < 0
    name = (dim.value if isinstance(dim, ir.SymbolicDim) else dim) or ""
    return not any(character.isalpha() for character in name)
