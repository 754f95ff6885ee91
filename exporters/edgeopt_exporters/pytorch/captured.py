"""What torch.export captured, made easier for the steps behind it."""

from __future__ import annotations

from typing import Any

import torch

from edgeopt_exporters.pytorch.checkpoints import fence_regions
from edgeopt_exporters.pytorch.translations import REWRITES
from edgeopt_exporters.pytorch.translations.rewriting import out_of_place, rewrite
from edgeopt_exporters.pytorch.translations.scalars import OF_SCALARS
from edgeopt_exporters.pytorch.translations.stopped import stop_outputs
from edgeopt_exporters.pytorch.written import separate_writes

__all__ = ["tidy"]

_aten = torch.ops.aten

# Made of other operators, none of which returns its input.
_FRESH = frozenset(
    getattr(_aten, name).default
    for name in ("conv1d", "conv2d", "conv3d", "batch_norm", "group_norm", "instance_norm", "layer_norm", "linear")
)


def tidy(program: torch.export.ExportedProgram) -> None:
    """Say the same without promises about memory, and mark where gradients stop; in place.

    A view promises that nothing has to be copied, which is so for the strides that the capture met. The next step of
    torch.onnx traces the program again, takes other kernels for attention, whose results have other strides, and would
    fail: T5 is such a case. A reshape, and attention copied into one order, are the same without the promise.

    An in-place activation of a tensor that nobody else holds is the ordinary one. torch finds that out too, by way of
    references in Python that take a third of the time of exporting a MobileNet.
    """
    shared = separate_writes(program)
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            # What these are said with may have a rewrite of its own.
            rewrite(module.graph, OF_SCALARS, of_scalars=True)
            rewrite(module.graph, REWRITES)
            _tidy(module.graph)
            stop_outputs(module.graph, shared)
    fence_regions(program.graph_module.graph)
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            module.recompile()


# Other names of operators, under which torch's exporter does not bring operands to one type.
_ALIASES = {
    getattr(getattr(_aten, alias), overload): getattr(getattr(_aten, name), overload)
    for alias, name, overloads in (
        ("divide", "div", ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")),
        ("true_divide", "div", ("Tensor", "Scalar")),
        ("multiply", "mul", ("Tensor", "Scalar")),
        ("subtract", "sub", ("Tensor", "Scalar")),
        ("greater", "gt", ("Tensor", "Scalar")),
        ("greater_equal", "ge", ("Tensor", "Scalar")),
        ("less", "lt", ("Tensor", "Scalar")),
        ("less_equal", "le", ("Tensor", "Scalar")),
        ("not_equal", "ne", ("Tensor", "Scalar")),
    )
    for overload in overloads
}


def _tidy(graph: torch.fx.Graph) -> None:
    for node in list(graph.nodes):
        node.target = _ALIASES.get(node.target, node.target)
        if node.target is _aten.view.default:
            node.target = _aten.reshape.default
        elif node.target is _aten.scaled_dot_product_attention.default:
            with graph.inserting_after(node):
                copy = graph.call_function(_aten.clone.default, (node,), {"memory_format": torch.contiguous_format})
            copy.meta.update(node.meta)
            node.replace_all_uses_with(copy, delete_user_cb=lambda user, copy=copy: user is not copy)
        elif _is_private_update(node):
            node.target = out_of_place(node.target)


def _is_private_update(node: torch.fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload) or out_of_place(node.target) is None:
        return False
    updated = node.args[0]
    return isinstance(updated, torch.fx.Node) and set(updated.users) == {node} and _is_fresh(updated.target)


def _is_fresh(operator: Any) -> bool:
    """Whether an operator returns memory of its own.

    An operator with a kernel says in its schema if it does not. One that is made of others does not say.
    """
    if not isinstance(operator, torch._ops.OpOverload):
        return False
    if operator in _FRESH:
        return True
    aliases = any(result.alias_info is not None for result in operator._schema.returns)
    return not aliases and not operator.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
