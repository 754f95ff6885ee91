"""Which nodes of a captured graph stand for the memory of another node, and which write into it."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import torch

__all__ = ["NO_GRAD", "Link", "link", "source", "written_operands"]

_aten = torch.ops.aten

# A stretch of the program in which gradients are switched off, or on, is a node that calls a graph of its own.
NO_GRAD = torch.ops.higher_order.wrap_with_set_grad_enabled

# Made of other operators, so that their schemas do not say that they may return what they are given.
_MAYBE_VIEWS = frozenset(
    {
        "reshape", "flatten", "contiguous", "expand_as", "view_as", "reshape_as", "to", "type_as", "chunk",
        "tensor_split", "narrow", "swapaxes", "swapdims", "movedim", "moveaxis", "ravel", "unflatten", "mT", "numpy_T",
        "matrix_H", "squeeze", "unsafe_chunk", "hsplit", "vsplit", "dsplit", "atleast_1d", "atleast_2d", "atleast_3d",
    }
)  # fmt: skip

# A node whose memory is that of another, and whether it is the very same tensor rather than a view of it.
Link = tuple[torch.fx.Node, bool]


def written_operands(node: torch.fx.Node, modules: Mapping[str, torch.fx.GraphModule]) -> list[torch.fx.Node]:
    """The operands that a node writes into; of one that calls a graph, those which it writes into there."""
    if _is_stretch(node):
        inner = modules[_graph_of(node)].graph
        places = [place for place in inner.nodes if place.op == "placeholder"]
        found = []
        for place, operand in zip(places, node.args[2:], strict=True):
            if isinstance(operand, torch.fx.Node) and any(
                source(written, modules) is place
                for other in inner.nodes
                for written in written_operands(other, modules)
            ):
                found.append(operand)
        return found
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    return [operand for argument, value in _arguments(node) if _writes(argument) for operand in _nodes(value)]


def link(node: torch.fx.Node, modules: Mapping[str, torch.fx.GraphModule]) -> Link | None:
    """What a node shares its memory with, one step up; None for memory of its own."""
    if node.target is operator.getitem:
        whole, index = node.args
        if not isinstance(whole, torch.fx.Node):
            return None
        if _is_stretch(whole):
            return _through(whole, index, modules)
        return _operand(whole)
    return _operand(node)


def source(node: torch.fx.Node, modules: Mapping[str, torch.fx.GraphModule]) -> torch.fx.Node:
    """The node whose memory a node stands for, itself if it is its own."""
    while (found := link(node, modules)) is not None:
        node = found[0]
    return node


def _is_stretch(node: torch.fx.Node) -> bool:
    return node.target is NO_GRAD


def _graph_of(node: torch.fx.Node) -> str:
    called = node.args[1]
    if not isinstance(called, torch.fx.Node):
        raise TypeError(f"{node.format_node()} calls no graph")
    return str(called.target)


def _through(node: torch.fx.Node, index: Any, modules: Mapping[str, torch.fx.GraphModule]) -> Link | None:
    """A result of a stretch that is one of its operands, written into there."""
    inner = modules[_graph_of(node)].graph
    result = inner.output_node().args[0][index]  # type: ignore[index]  # a stretch returns a tuple
    places = [place for place in inner.nodes if place.op == "placeholder"]
    same = True
    while isinstance(result, torch.fx.Node) and (found := link(result, modules)) is not None:
        result, same = found[0], same and found[1]
    operand = node.args[2 + places.index(result)] if result in places else None
    return (operand, same) if isinstance(operand, torch.fx.Node) else None


def _operand(node: torch.fx.Node) -> Link | None:
    called = node.target
    if not isinstance(called, torch._ops.OpOverload):
        return None
    for argument, value in _arguments(node):
        aliased = argument.alias_info is not None and (argument.alias_info.is_write or _returns(called, argument))
        if aliased and isinstance(value, torch.fx.Node) and called._schema.returns:
            return value, bool(argument.alias_info.is_write)
    name = called._schema.name.removeprefix("aten::")
    first = node.args[0] if node.args else None
    return (first, False) if name in _MAYBE_VIEWS and isinstance(first, torch.fx.Node) else None


def _returns(called: torch._ops.OpOverload, argument: Any) -> bool:
    """Whether a result shares memory with the argument. Of a list's members, the schema says so by wildcards."""
    mine = argument.alias_info.before_set | argument.alias_info.after_set
    return any(
        result.alias_info is not None and (result.alias_info.before_set & mine or "*" in argument.alias_info.after_set)
        for result in called._schema.returns
    )


def _writes(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def _arguments(node: torch.fx.Node) -> Iterator[tuple[Any, Any]]:
    schema = node.target._schema  # type: ignore[union-attr]  # callers have looked
    for position, argument in enumerate(schema.arguments):
        if position < len(node.args) and not argument.kwarg_only:
            yield argument, node.args[position]
        elif argument.name in node.kwargs:
            yield argument, node.kwargs[argument.name]


def _nodes(value: Any) -> Iterator[torch.fx.Node]:
    if isinstance(value, torch.fx.Node):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _nodes(item)
