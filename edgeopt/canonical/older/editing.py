"""A node written anew, for adapters: no type has to be known for that."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from edgeopt.tracing import Array
from edgeopt.tracing.site import Site

__all__ = ["rewritten"]


def rewritten(
    n: Site, *inputs: Array | None, op_type: str | None = None, without: tuple[str, ...] = (), **attributes: Any
) -> tuple[Array, ...]:
    """The node with other inputs, another name of its operator, or other attributes; its outputs keep their types.

    Args:
        n: The node.
        inputs: All inputs of the new node.
        op_type: The new operator, where it is not the old.
        without: Attributes to drop.
        attributes: Attributes to add or to change.
    """
    tracer, old = n.tracer, n.node
    kept = {attr.name: attr for attr in old.attributes.values() if attr.name not in without}
    kept.update((attr.name, attr) for attr in ir.convenience.convert_attributes(attributes))
    values = [None if array is None else array.value for array in inputs]
    while values and values[-1] is None:
        values.pop()
    node = ir.Node("", op_type or old.op_type, values, kept.values(), num_outputs=len(old.outputs), name=old.name)
    for new, value in zip(node.outputs, old.outputs, strict=True):
        # Outputs that were left out have no name, and stay out.
        new.name = tracer.fresh_name(value.name) if value.name else value.name
        new.type, new.shape = value.type, value.shape
    tracer.graph.append(node)
    return tuple(tracer.wrap(value) for value in node.outputs)
