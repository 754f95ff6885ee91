"""Where PyTorch's gradient is not that of the values: detach, no_grad, rows of padding, functions with own backwards.

A graph of values says nothing of it, so it would be differentiated like the rest. What has no gradient therefore passes
through an operator of our own, on which torch's passes have no opinion; the finished forward graph has a marked
Identity in its place. A function that brings its own backward is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnxscript import opset18
from onnxscript.values import Op, Opset

from edgeopt.errors import UnsupportedModelError
from edgeopt.tracing import Tracer
from edgeopt.tracing.rewriting import replace_node
from edgeopt.tracing.site import Site

__all__ = ["TRANSLATIONS", "mark_stopped", "own_backwards_refused", "stop_outputs"]

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
_library: Any = torch.library.Library("edgeopt", "FRAGMENT")  # type: ignore[no-untyped-call]  # see above
_library.define("stop_gradient(Tensor input) -> Tensor")
torch.library.register_fake("edgeopt::stop_gradient", torch.clone, lib=_library)
# A tensor that forward makes of numbers has its value in the program, and torch computes with it there.
_library.impl("stop_gradient", torch.clone, "CompositeExplicitAutograd")


def stop_outputs(graph: torch.fx.Graph, shared: Collection[torch.fx.Node] = ()) -> None:
    """Mark what is detached, what becomes a number, and what is computed where gradients are switched off.

    Args:
        graph: Of a captured program, changed in place.
        shared: The nodes by way of which something is written, so that they have to stay views.
    """
    stop = torch.ops.edgeopt.stop_gradient.default
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.detach.default and node not in shared:
            node.target = stop
        elif node.target is torch.ops.aten.detach.default:
            for reader in [reader for reader in node.users if reader not in shared and not _writes_into(reader, node)]:
                # Where it is read, since something may be written into it before.
                with graph.inserting_before(reader):
                    stopped = graph.call_function(stop, (node,))
                stopped.meta.update(node.meta)
                reader.replace_input_with(node, stopped)
        elif node.target is torch.ops.aten.item.default:
            # A number in Python has no gradient.
            with graph.inserting_before(node):
                stopped = graph.call_function(stop, (node.args[0],))
            stopped.meta.update(node.args[0].meta)
            node.replace_input_with(node.args[0], stopped)
        elif node.target is torch.ops.higher_order.wrap_with_set_grad_enabled and node.args[0] is False:
            for result in list(node.users):
                with graph.inserting_after(result):
                    stopped = graph.call_function(stop, (result,))
                stopped.meta.update(result.meta)
                result.replace_all_uses_with(stopped, delete_user_cb=lambda user, new=stopped: user is not new)


def _writes_into(reader: torch.fx.Node, operand: torch.fx.Node) -> bool:
    first = reader.args[0] if reader.args else None
    name = getattr(reader.target, "__name__", "").split(".")[0]
    return first is operand and name.endswith("_")


@contextmanager
def own_backwards_refused() -> Iterator[None]:
    """Within it, functions that bring their own backward raise: a captured program holds their forward only."""
    original = torch.autograd.Function.__dict__["apply"]

    def apply(function: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
        if function.__module__.split(".")[0] != "torch":
            raise UnsupportedModelError(
                f"{function.__qualname__} is a torch.autograd.Function, whose backward is not part of a captured "
                "program. Write it with operations that PyTorch differentiates; detach() stops gradients."
            )
        return original.__get__(None, function)(*args, **kwargs)

    torch.autograd.Function.apply = classmethod(apply)
    try:
        yield
    finally:
        torch.autograd.Function.apply = original


def _stop_gradient(array: Any) -> Any:
    result = _marker(array)
    result.type, result.shape = array.type, array.shape
    return result


def _embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    """`aten::embedding`. The row at `padding_idx` is read like any other, but gets no gradient."""
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
            replace_node(tracer, node, tracer.stop_gradient(Site(tracer, node).x))
    graph.sort()


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.edgeopt.stop_gradient.default: _stop_gradient,
    torch.ops.aten.embedding.default: _embedding,
}
