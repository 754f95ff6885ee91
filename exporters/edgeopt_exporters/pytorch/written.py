"""What forward writes into tensors behind the back of autograd: under no_grad, through `detach()` or `data`.

From then on the tensor has the new values, and gradients still arrive at what it was. A captured program says neither,
once it is free of side effects: gradients would pass through what computed the new values, or stop. So the written
tensor becomes a tensor of its own, by an operator that takes the values from one operand and gives the gradient to the
other, and what comes later reads that.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnxscript import opset18
from onnxscript.values import Op, Opset

from edgeopt.tracing import Tracer
from edgeopt.tracing.rewriting import replace_node
from edgeopt.tracing.site import Site
from edgeopt_exporters.pytorch.aliases import NO_GRAD, link, source, written_operands

__all__ = ["TRANSLATIONS", "mark_written", "separate_writes"]

# Its type variables demand a type for each traced value, which translations do not have.
op: Any = opset18

_DOMAIN = "edgeopt"
_FLOATS = ["tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"]
_schema = onnx.defs.OpSchema(
    "Written",
    _DOMAIN,
    1,
    inputs=[onnx.defs.OpSchema.FormalParameter("old", "T"), onnx.defs.OpSchema.FormalParameter("new", "T")],
    outputs=[onnx.defs.OpSchema.FormalParameter("written", "T")],
    type_constraints=[("T", _FLOATS, "floats")],
)
_marker: Any = Op(Opset(_DOMAIN, 1), _schema.name, _schema)

# The operator lives as long as this object, whose class torch has not annotated.
_library: Any = torch.library.Library("edgeopt", "FRAGMENT")  # type: ignore[no-untyped-call]  # see above
_library.define("keep(Tensor old) -> Tensor")
_library.define("written(Tensor old, Tensor new) -> Tensor")
torch.library.register_fake("edgeopt::keep", torch.clone, lib=_library)
torch.library.register_fake("edgeopt::written", lambda old, new: torch.clone(new), lib=_library)

Modules = Mapping[str, torch.fx.GraphModule]


def separate_writes(program: torch.export.ExportedProgram) -> set[torch.fx.Node]:
    """Give what is written without gradients a node of its own, in place.

    Returns:
        The nodes by way of which something is written, which have to go on sharing memory with it.
    """
    root = program.graph_module
    modules: Modules = {name: part for name, part in root.named_modules() if isinstance(part, torch.fx.GraphModule)}
    specs = program.graph_signature.input_specs
    parameters = {spec.arg.name for spec in specs if spec.kind is torch.export.graph_signature.InputKind.PARAMETER}
    protected: set[torch.fx.Node] = set()
    for node in list(root.graph.nodes):
        for operand in dict.fromkeys(written_operands(node, modules)):
            chain = _chain(operand, modules)
            base = chain[-1]
            # Buffers and inputs have no gradient to keep.
            mine = base.op != "placeholder" or base.name in parameters
            stopped = node.target is NO_GRAD or base.op == "placeholder" or any(map(_stops, chain))
            if mine and stopped and _is_float(base):
                protected.update(chain)
                _separate(root.graph, node, base, modules)
    if protected:
        _drop_other_names(program)
    return protected


def _drop_other_names(program: torch.export.ExportedProgram) -> None:
    """Leave tied parameters one input: what is written into cannot have two."""
    known: set[int] = set()
    inputs = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    specs = program.graph_signature.input_specs
    # What is read, first: captured nodes read all of one parameter by one of its names.
    for spec in sorted(specs, key=lambda spec: not inputs[spec.arg.name].users):
        memory = program.state_dict.get(spec.target or "")
        if memory is None:
            continue
        if id(memory) in known and not inputs[spec.arg.name].users:
            program.graph.erase_node(inputs[spec.arg.name])
            specs.remove(spec)
        known.add(id(memory))


def _chain(node: torch.fx.Node, modules: Modules) -> list[torch.fx.Node]:
    chain = [node]
    while (found := link(chain[-1], modules)) is not None:
        chain.append(found[0])
    return chain


def _stops(node: torch.fx.Node) -> bool:
    return node.target is torch.ops.aten.detach.default


def _is_float(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _separate(graph: torch.fx.Graph, writer: torch.fx.Node, base: torch.fx.Node, modules: Modules) -> None:
    """Let all that follows a write read the written tensor instead of the one that was written into."""
    with graph.inserting_before(writer):
        keep = graph.call_function(torch.ops.edgeopt.keep.default, (base,))
    last = writer
    while last.next.target is operator.getitem and last.next.args[0] is writer:
        last = last.next
    with graph.inserting_after(last):
        written = graph.call_function(torch.ops.edgeopt.written.default, (keep, base))
    keep.meta.update(_meta(base, writer))
    written.meta.update(_meta(base, writer))
    before, after = _around(graph, written)
    aliases = [node for node in before if node is not base and node is not keep and source(node, modules) is base]
    again: dict[torch.fx.Node, torch.fx.Node] = {base: written}
    for alias in aliases:
        users = [user for user in alias.users if user in after]
        if users:
            replacement = _again(graph, alias, again, written, modules)
            for user in users:
                user.replace_input_with(alias, replacement)
    for user in [user for user in base.users if user in after]:
        user.replace_input_with(base, written)


def _meta(base: torch.fx.Node, writer: torch.fx.Node) -> dict[str, Any]:
    kept = ("nn_module_stack", "stack_trace", "custom")
    return {"val": base.meta["val"], **{key: writer.meta[key] for key in kept if key in writer.meta}}


def _around(graph: torch.fx.Graph, middle: torch.fx.Node) -> tuple[list[torch.fx.Node], set[torch.fx.Node]]:
    nodes = list(graph.nodes)
    position = nodes.index(middle)
    return nodes[:position], set(nodes[position + 1 :])


def _again(
    graph: torch.fx.Graph,
    alias: torch.fx.Node,
    again: dict[torch.fx.Node, torch.fx.Node],
    after: torch.fx.Node,
    modules: Modules,
) -> torch.fx.Node:
    """The same view of the written tensor."""
    if alias in again:
        return again[alias]
    found = link(alias, modules)
    if found is None:
        raise TypeError(f"{alias.format_node()} is no view")
    upper, same = found
    base = _again(graph, upper, again, after, modules)
    if same:
        again[alias] = base
        return base
    with graph.inserting_after(_later(graph, after, base)):
        if alias.target is operator.getitem and isinstance(alias.args[0], torch.fx.Node):
            # A part of a list of views, which is made anew with it.
            whole = graph.node_copy(alias.args[0], lambda node: base if node is upper else node)
            with graph.inserting_after(whole):
                copy = graph.call_function(operator.getitem, (whole, alias.args[1]))
            copy.meta.update(alias.meta)
        else:
            copy = graph.node_copy(alias, lambda node: base if node is upper else node)
    again[alias] = copy
    return copy


def _later(graph: torch.fx.Graph, one: torch.fx.Node, other: torch.fx.Node) -> torch.fx.Node:
    order = {node: position for position, node in enumerate(graph.nodes)}
    return max(one, other, key=lambda node: order[node])


def mark_written(graph: ir.Graph) -> None:
    """Replace the operators in a finished forward graph, in place, by nodes that reverse mode knows."""
    tracer = Tracer(graph)
    for node in list(graph):
        if node.domain == _DOMAIN and node.op_type == "Written":
            site = Site(tracer, node)
            replace_node(tracer, node, tracer.written(site.x, site.input(1)))
    graph.sort()


def _keep(old: Any) -> Any:
    # A value of its own, to which torch gives a name of its own.
    return op.Identity(old)


def _written(old: Any, new: Any) -> Any:
    result = _marker(old, new)
    result.type, result.shape = new.type, new.shape
    return result


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.edgeopt.keep.default: _keep,
    torch.ops.edgeopt.written.default: _written,
}
