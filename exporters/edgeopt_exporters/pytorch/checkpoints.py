"""`torch.utils.checkpoint` in forward: computed as if it were not there, and marked for recomputation.

A captured program cannot run the backward pass of a checkpoint, so in its place the function is called as it is. What
belongs to it is known by annotations that torch gives to the nodes captured meanwhile. Where tensors enter and leave
such a region, an operator of our own stands until the forward graph is finished; then the nodes between are marked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnxscript.values import Op, Opset
from torch.fx.traceback import annotate
from torch.utils import checkpoint as _torch

from edgeopt.tracing.marks import REGION
from edgeopt_exporters.pytorch.aliases import NO_GRAD, link, written_operands

__all__ = ["TRANSLATIONS", "checkpoints_called", "fence_regions", "mark_regions"]

_ANNOTATION = "edgeopt.checkpoint"
_DOMAIN = "edgeopt"
_FLOATS = ["tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"]
_schema = onnx.defs.OpSchema(
    "Fence",
    _DOMAIN,
    1,
    inputs=[onnx.defs.OpSchema.FormalParameter("array", "T")],
    outputs=[onnx.defs.OpSchema.FormalParameter("same", "T")],
    type_constraints=[("T", _FLOATS, "floats")],
    attributes=[
        onnx.defs.OpSchema.Attribute("region", onnx.defs.OpSchema.AttrType.INT),
        onnx.defs.OpSchema.Attribute("entering", onnx.defs.OpSchema.AttrType.INT),
    ],
)
_fence: Any = Op(Opset(_DOMAIN, 1), _schema.name, _schema)

# The operator lives as long as this object, whose class torch has not annotated.
_library: Any = torch.library.Library("edgeopt", "FRAGMENT")  # type: ignore[no-untyped-call]  # see above
_library.define("fence(Tensor input, int region, bool entering) -> Tensor")
torch.library.register_fake("edgeopt::fence", lambda input, region, entering: torch.clone(input), lib=_library)  # noqa: A006  # the schema's name

# By their names in torch, and the older one.
_GENERATORS = ("_checkpoint_without_reentrant_generator_impl", "_checkpoint_without_reentrant_generator")


@contextmanager
def checkpoints_called() -> Iterator[None]:
    """Within it, `checkpoint` calls its function, and what is captured meanwhile is annotated with a number."""
    numbers = itertools.count(1)
    originals = {name: getattr(_torch, name) for name in _GENERATORS if hasattr(_torch, name)}
    apply = _torch.CheckpointFunction.__dict__.get("apply")

    def generator(*args: Any, **kwargs: Any) -> Iterator[None]:
        with annotate({_ANNOTATION: next(numbers)}):
            yield

    def reentrant(function: type, run: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        # Its backward pass begins at its inputs: without one that takes gradients, it never runs.
        trained = any(isinstance(value, torch.Tensor) and value.requires_grad for value in args)
        with annotate({_ANNOTATION: next(numbers)}), torch.set_grad_enabled(torch.is_grad_enabled() and trained):
            return run(*args)

    try:
        for name in originals:
            setattr(_torch, name, generator)
        _torch.CheckpointFunction.apply = classmethod(reentrant)
        yield
    finally:
        for name, original in originals.items():
            setattr(_torch, name, original)
        if apply is None:
            del _torch.CheckpointFunction.apply
        else:
            _torch.CheckpointFunction.apply = apply


def fence_regions(graph: torch.fx.Graph) -> None:
    """Put operators where floating-point tensors enter and leave the regions of a captured program, in place."""
    regions = {node: region for node in graph.nodes if (region := _region(graph, node)) is not None}
    if not regions:
        return
    shared = _written_memory(graph)

    def fence(value: torch.fx.Node, region: int, entering: bool, reader: torch.fx.Node) -> torch.fx.Node:
        # Where it is read, since something may be written into it before.
        with graph.inserting_before(reader):
            new = graph.call_function(torch.ops.edgeopt.fence.default, (value, region, entering))
        new.meta.update(value.meta)
        return new

    for node in list(graph.nodes):
        for value in list(node.all_input_nodes):
            inner, outer = regions.get(node), regions.get(value)
            if inner == outer or not _is_activation(value) or (node, value) in shared:
                continue
            new = value if outer is None else fence(value, outer, False, node)
            new = new if inner is None else fence(new, inner, True, node)
            node.replace_input_with(value, new)


def _region(graph: torch.fx.Graph, node: torch.fx.Node) -> int | None:
    """The number of the region that a node belongs to."""
    if node.op != "call_function":
        return None
    if node.target is NO_GRAD:
        # The node itself is torch's, and what it calls is the user's.
        inner = getattr(graph.owning_module, str(node.args[1].target)).graph  # type: ignore[union-attr]  # it is a node
        found = [_region(graph, other) for other in inner.nodes if other.target is not NO_GRAD]
        return next((region for region in found if region is not None), None)
    region = (node.meta.get("custom") or {}).get(_ANNOTATION)
    return region if isinstance(region, int) else None


def _is_activation(value: torch.fx.Node) -> bool:
    fake = value.meta.get("val")
    return value.op == "call_function" and isinstance(fake, torch.Tensor) and fake.dtype.is_floating_point


def _written_memory(graph: torch.fx.Graph) -> set[tuple[torch.fx.Node, torch.fx.Node]]:
    """Pairs of a node and an operand of it, by way of which something is written: these have to share memory."""
    parts = graph.owning_module.named_modules() if graph.owning_module is not None else ()
    modules = {name: part for name, part in parts if isinstance(part, torch.fx.GraphModule)}
    found = set()
    for node in graph.nodes:
        for operand in written_operands(node, modules):
            reader, value = node, operand
            found.add((reader, value))
            while (upper := link(value, modules)) is not None:
                reader, value = value, upper[0]
                found.add((reader, value))
    return found


def mark_regions(graph: ir.Graph) -> None:
    """Take the fences out of a finished forward graph, in place, and mark the nodes between them."""
    fences = [node for node in graph if node.domain == _DOMAIN and node.op_type == "Fence"]
    for node in fences:
        if not node.attributes["entering"].as_int():
            _mark(node, str(node.attributes["region"].as_int()))
    for node in fences:
        value, result = node.inputs[0], node.outputs[0]
        if value is None:
            raise TypeError(f"{node.name} has no operand")
        if result.is_graph_output():
            name = result.name
            same = ir.Node("", "Identity", [value], num_outputs=1)
            same.outputs[0].type, same.outputs[0].shape = result.type, result.shape
            graph.insert_before(node, same)
            value = same.outputs[0]
            result.name, value.name = None, name
        result.replace_all_uses_with(value, replace_graph_outputs=True)
        graph.remove(node, safe=True)


def _mark(leaving: ir.Node, region: str) -> None:
    """Mark what a tensor that leaves a region is computed from, as far as the tensors that enter it."""
    waiting = [value for value in leaving.inputs if value is not None]
    seen: set[ir.Node] = set()
    while waiting:
        node = waiting.pop().producer()
        if node is None or node in seen or node.op_type == "Shape":
            continue
        seen.add(node)
        fence = node.op_type == "Fence" and node.domain == _DOMAIN
        if fence and str(node.attributes["region"].as_int()) == region:
            continue
        if not fence:
            node.metadata_props[REGION] = region
        waiting.extend(value for value in node.inputs if value is not None)


def _translation(array: Any, region: int, entering: bool) -> Any:
    result = _fence(array, region=region, entering=int(entering))
    result.type, result.shape = array.type, array.shape
    return result


TRANSLATIONS: dict[Any, Callable[..., Any]] = {torch.ops.edgeopt.fence.default: _translation}
