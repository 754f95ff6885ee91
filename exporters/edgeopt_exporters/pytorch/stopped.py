"""Where PyTorch takes no gradient although a value depends on parameters: detach, no_grad, rows of padding.

A graph of values says nothing of it, so it would be differentiated like the rest. Such values therefore pass through
an operator of our own, on which torch's passes have no opinion; the finished forward graph has a marked Identity in its
place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnxscript import opset18
from onnxscript.values import Op, Opset

from edgeopt.tracing import Tracer
from edgeopt.tracing.rewriting import replace_node

__all__ = ["TRANSLATIONS", "mark_stopped", "stop_outputs"]

# Its type variables demand a type for each traced value, which translations do not have.
op: Any = opset18

_DOMAIN = "edgeopt"
_schema = onnx.defs.OpSchema(
    "StopGradient",
    _DOMAIN,
    1,
    inputs=[onnx.defs.OpSchema.FormalParameter("array", "T")],
    outputs=[onnx.defs.OpSchema.FormalParameter("same", "T")],
    type_constraints=[("T", ["tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"], "floats")],
)
_marker: Any = Op(Opset(_DOMAIN, 1), _schema.name, _schema)

# The operator lives as long as this object, whose class torch has not annotated.
_library: Any = torch.library.Library("edgeopt", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define("stop_gradient(Tensor input) -> Tensor")
torch.library.register_fake("edgeopt::stop_gradient", torch.clone, lib=_library)


def stop_outputs(graph: torch.fx.Graph) -> None:
    """Mark what is detached, and what is computed where gradients are switched off."""
    stop = torch.ops.edgeopt.stop_gradient.default
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.detach.default:
            node.target = stop
        elif node.target is torch.ops.higher_order.wrap_with_set_grad_enabled and node.args[0] is False:
            for result in list(node.users):
                with graph.inserting_after(result):
                    stopped = graph.call_function(stop, (result,))
                stopped.meta.update(result.meta)
                result.replace_all_uses_with(stopped, delete_user_cb=lambda user, new=stopped: user is not new)


def _stop_gradient(array: Any) -> Any:
    result = _marker(array)
    result.type, result.shape = array.type, array.shape
    return result


def _embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    """`aten::embedding`. The row at `padding_idx` is read like any other, but gets no gradient."""
    if scale_grad_by_freq:
        raise NotImplementedError("Embedding(scale_grad_by_freq=True) has no translation; leave the option out.")
    rows = op.Gather(weight, indices)
    if padding_idx < 0:
        return rows
    padding = ir.tensor(padding_idx, dtype=indices.dtype)
    is_padding = op.Unsqueeze(op.Equal(indices, op.Constant(value=padding)), op.Constant(value_ints=[-1]))
    rows.type, rows.shape = weight.type, ir.Shape([*indices.shape, weight.shape[1]])
    return op.Where(is_padding, _stop_gradient(rows), rows)


def mark_stopped(graph: ir.Graph) -> None:
    """Replace the operator in a finished forward graph by an Identity that reverse mode does not pass."""
    tracer = Tracer(graph)
    for node in list(graph):
        if node.domain == _DOMAIN and node.op_type == "StopGradient":
            replace_node(tracer, node, tracer.stop_gradient(tracer.wrap(node.inputs[0])))
    graph.sort()


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.edgeopt.stop_gradient.default: _stop_gradient,
    torch.ops.aten.embedding.default: _embedding,
}
