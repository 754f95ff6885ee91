"""Operators said with other operators of PyTorch, before anything is translated.

Where the translation of torch's exporter drops arguments or is missing, the same is often a few lines of PyTorch. A
rewrite is such a function: it takes the operator's arguments and returns what the operator returns. It is traced for
the shapes that stand in the captured program, symbolic ones included, and takes the node's place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

__all__ = ["Rewrite", "arguments", "rewrite"]

Rewrite: TypeAlias = Callable[..., Any]


def rewrite(graph: torch.fx.Graph, rewrites: Mapping[Any, Rewrite]) -> None:
    """Replace, in place, each node whose operator has a rewrite; one that returns NotImplemented leaves its node."""
    for node in list(graph.nodes):
        function = rewrites.get(node.target) if node.op == "call_function" else None
        if function is not None:
            _replace(graph, node, function)


def arguments(node: torch.fx.Node) -> dict[str, Any]:
    """All arguments of a node by the names in its operator's schema, left-out ones with their defaults."""
    given = dict(node.kwargs)
    for formal, argument in zip(node.target._schema.arguments, node.args):  # type: ignore[union-attr]  # an overload
        given[formal.name] = argument
    return given


def _replace(graph: torch.fx.Graph, node: torch.fx.Node, function: Rewrite) -> None:
    operands: list[torch.fx.Node] = []
    names = [formal.name for formal in node.target._schema.arguments]  # type: ignore[union-attr]  # an overload
    keywords = set(inspect.signature(function).parameters)
    given = {**dict(zip(names, node.args)), **node.kwargs}
    given = {name: value for name, value in given.items() if name in keywords}

    def collect(operand: torch.fx.Node) -> torch.fx.Node:
        if operand not in operands:
            operands.append(operand)
        return operand

    torch.fx.map_arg(given, collect)
    examples = [operand.meta["val"] for operand in operands]
    mode = next((example.fake_mode for example in examples if isinstance(example, FakeTensor)), FakeTensorMode())
    taken = True

    def body(*values: Any) -> Any:
        nonlocal taken
        bound = dict(zip(operands, values, strict=True))
        results = function(**torch.fx.map_arg(given, lambda operand: bound[operand]))
        taken = results is not NotImplemented
        return results if taken else ()

    with mode:
        traced = make_fx(body, tracing_mode="real", pre_dispatch=True, _allow_non_fake_inputs=True)(*examples)
    if not taken:
        return
    results = _inline(graph, node, traced, operands)
    if isinstance(results, tuple):
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])  # type: ignore[index]  # operator.getitem of a number
            graph.erase_node(user)
    else:
        node.replace_all_uses_with(results)
    graph.erase_node(node)


def _inline(
    graph: torch.fx.Graph, node: torch.fx.Node, traced: torch.fx.GraphModule, operands: list[torch.fx.Node]
) -> Any:
    copies: dict[torch.fx.Node, Any] = {}
    inputs = iter(operands)
    with graph.inserting_before(node):
        for inner in traced.graph.nodes:
            if inner.op == "placeholder":
                copies[inner] = next(inputs)
            elif inner.op == "get_attr":
                copies[inner] = _constant(graph, getattr(traced, inner.target))
            elif inner.op == "output":
                return torch.fx.map_arg(inner.args[0], lambda operand: copies[operand])
            else:
                copy = graph.node_copy(inner, lambda operand: copies[operand])
                # The place in the user's module that the new nodes are named after.
                copy.meta.update({name: node.meta[name] for name in _ORIGIN if name in node.meta})
                copies[inner] = copy
    raise AssertionError("A traced graph has an output.")


_ORIGIN = ("nn_module_stack", "stack_trace", "source_fn_stack", "from_node", "torch_fn")


def _constant(graph: torch.fx.Graph, tensor: torch.Tensor) -> torch.fx.Node:
    """A number that the rewrite made a tensor of."""
    raise AssertionError(f"A rewrite must not hold a tensor of its own: {tensor}.")
