"""Tensors that are computed from constants alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from edgeopt.errors import UnsupportedModelError
from edgeopt.tracing import OPSET

__all__ = ["evaluated"]


def evaluated(value: ir.Value) -> NDArray[Any]:
    """The value of a tensor that depends on no input.

    Raises:
        UnsupportedModelError: An operator on the way to it cannot be computed here.
    """
    known = ir.convenience.get_const_tensor(value)
    if known is not None:
        return np.array(known.numpy())
    node = value.producer()
    if node is None:
        raise UnsupportedModelError(f"The value of {value.name!r} is not in the file.")
    names = ["" if operand is None else f"i{position}" for position, operand in enumerate(node.inputs)]
    results = [f"o{position}" for position in range(len(node.outputs))]
    proto = onnx.helper.make_node(node.op_type, names, results, domain=node.domain)
    proto.attribute.extend(ir.serde.serialize_attribute(attribute) for attribute in node.attributes.values())
    feeds = {name: evaluated(operand) for name, operand in zip(names, node.inputs, strict=True) if operand is not None}
    untyped = [onnx.ValueInfoProto(name=name) for name in (*feeds, *results)]
    graph = onnx.helper.make_graph([proto], "constants", untyped[: len(feeds)], untyped[len(feeds) :])
    version = OPSET if node.version is None else node.version
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)])
    try:
        computed: Any = ReferenceEvaluator(model).run(None, feeds)
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedModelError(f"{node.op_type} {node.name!r}, which computes a weight, fails: {error}") from error
    return np.asarray(computed[node.outputs.index(value)])
