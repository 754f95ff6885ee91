"""One node as the tables see it: gradient rules, decompositions, lowerings."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from edgeopt.tracing.array import Array, to_ir_dtype
from edgeopt.tracing.shapes import Shape, to_ir
from edgeopt.tracing.subgraphs import operands
from edgeopt.tracing.tracer import Tracer

__all__ = ["PROBLEM", "Site", "qualified_name"]

# Under this name a node carries the reason for which it could not be said with other operators.
PROBLEM = "edgeopt.problem"


def qualified_name(node: ir.Node) -> str:
    """The name under which the tables know a node's operator: `Relu`, `com.microsoft::Gelu`."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


class Site:
    """The node under a rule: its arrays, its attributes, and, in reverse mode, which inputs need a cotangent.

    `n.x` is the first input, `n.y` the first output; `n.inputs` and `n.outputs` are all of them (None where left out).
    In reverse mode, `n.singular` says whether the arriving cotangents may be infinite or NaN while the loss is finite.
    The outer tensors that bodies of control flow capture count as inputs too, after the node's own.
    """

    def __init__(self, tracer: Tracer, node: ir.Node, needs: tuple[bool, ...] = ()) -> None:
        self.tracer = tracer
        self.node = node
        self.needs = needs
        self.singular = False

    @cached_property
    def inputs(self) -> tuple[Array | None, ...]:
        """The input arrays."""
        return tuple(None if value is None else self.tracer.wrap(value) for value in operands(self.node))

    @cached_property
    def outputs(self) -> tuple[Array, ...]:
        """The output arrays."""
        return tuple(self.tracer.wrap(value) for value in self.node.outputs)

    @property
    def x(self) -> Array:
        """The first input."""
        return self.input(0)

    @property
    def y(self) -> Array:
        """The first output."""
        return self.outputs[0]

    def has(self, position: int) -> bool:
        """Whether the input is there."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def input(self, position: int) -> Array:
        """An input that must be there."""
        array = self.inputs[position] if position < len(self.inputs) else None
        if array is None:
            raise LookupError(f"{self} has no input {position}")
        return array

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or the default where the node does not give it."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.value

    def number(self, name: str, default: float) -> float:
        """A float attribute, or the operator's default."""
        return float(self.attr(name, default))

    def constant(self, position: int) -> np.ndarray[Any, Any] | None:
        """The value of an input that is a constant of the graph, None otherwise."""
        return self.input(position).constant if self.has(position) else None

    def output(self, position: int, dtype: Any, shape: Shape) -> Array:
        """An output of this type, asked for if the forward graph has not."""
        if len(self.node.outputs) <= position:
            self.node.resize_outputs(position + 1)
        value = self.node.outputs[position]
        if not value.name:
            value.name = self.tracer.fresh_name(self.node.op_type.lower())
            value.type, value.shape = ir.TensorType(to_ir_dtype(dtype)), to_ir(shape)
        return self.tracer.wrap(value)

    def mask(self) -> Array:
        """The second output of a Dropout."""
        return self.output(1, np.bool_, self.y.shape)

    def __repr__(self) -> str:
        return f"{self.node.op_type} {self.node.name!r}"
