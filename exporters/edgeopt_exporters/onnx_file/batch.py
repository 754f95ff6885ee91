"""A file made for one example at a time, taken for any number of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from edgeopt.canonical.copies import copied
from edgeopt.tracing import Tracer
from edgeopt_exporters.onnx_file.examples import BATCH

__all__ = ["make_batch_symbolic"]


def make_batch_symbolic(model: ir.Model, inputs: Sequence[str]) -> ir.Model:
    """A copy whose inputs have the symbolic first dimension "batch", where every output then has it too.

    The model itself is returned if it has a symbolic dimension already, or if something in it ties the examples to
    their number.
    """
    sizes = {_first_static_dim(value) for value in model.graph.inputs if value.name in inputs}
    if len(sizes) != 1 or None in sizes:
        return model
    copy = copied(model)
    graph = copy.graph
    expected = [_with_batch(value.shape) for value in graph.outputs]
    _copy_batch_in_reshapes(graph, inputs)
    for value in graph.inputs:
        if value.name in inputs:
            value.shape = _with_batch(value.shape)
    for node in ir.traversal.RecursiveGraphIterator(graph):
        for value in node.outputs:
            value.shape = None
    common_passes.ShapeInferencePass(check_type=False, strict_mode=False)(copy)
    return copy if [value.shape for value in graph.outputs] == expected else model


def _first_static_dim(value: ir.Value) -> int | None:
    """The size of axis 0, None unless all dimensions are numbers."""
    if value.shape is None or not value.shape.rank() or not all(isinstance(dim, int) for dim in value.shape):
        return None
    size = value.shape[0]
    return size if isinstance(size, int) else None


def _with_batch(shape: ir.Shape | None) -> ir.Shape | None:
    return None if shape is None or not shape.rank() else ir.Shape([BATCH, *list(shape)[1:]])


def _copy_batch_in_reshapes(graph: ir.Graph, inputs: Sequence[str]) -> None:
    """Reshape targets that begin with the number of examples copy it from the data instead."""
    of_examples = {value for value in graph.inputs if value.name in inputs}
    tracer = Tracer(graph)
    for node in list(graph):
        if not of_examples.intersection(node.inputs):
            continue
        of_examples.update(node.outputs)
        if node.op_type != "Reshape" or node.inputs[0] not in of_examples or node.inputs[1] is None:
            continue
        target, data = ir.convenience.get_const_tensor(node.inputs[1]), node.inputs[0].shape
        if target is None or data is None or not data.rank() or node.attributes.get_int("allowzero"):
            continue
        sizes = target.numpy()
        if sizes.size and sizes[0] == data[0]:
            node.replace_input_with(1, tracer.constant(np.asarray([0, *sizes[1:]], np.int64)).value)
    graph.sort()
