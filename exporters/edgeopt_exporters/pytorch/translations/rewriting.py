"""Operators said with other operators of PyTorch, before anything is translated.

Where the translation of torch's exporter drops arguments or is missing, the same is often a few lines of PyTorch. A
rewrite is such a function: it takes the operator's arguments and returns what the operator returns. It is traced for
the shapes that stand in the captured program, symbolic ones included, and takes the node's place.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from edgeopt.errors import UnsupportedModelError

__all__ = ["Replaced", "Rewrite", "out_of_place", "rewrite"]

Rewrite: TypeAlias = Callable[..., Any]


def rewrite(graph: torch.fx.Graph, rewrites: Mapping[Any, Rewrite], *, of_scalars: bool = False) -> None:
    """Replace, in place, each node whose operator has a rewrite; one that returns NotImplemented leaves its node.

    Args:
        graph: The graph.
        rewrites: By operator.
        of_scalars: Whether only nodes whose first argument is a tensor without axes are replaced.
    """
    for node in list(graph.nodes):
        function = None if of_scalars and not _is_of_scalar(node) else _rewrite_of(node.target, rewrites)
        if function is not None:
            _replace(graph, node, function)


def _is_of_scalar(node: torch.fx.Node) -> bool:
    first = node.args[0] if node.args else None
    return isinstance(first, torch.fx.Node) and getattr(first.meta.get("val"), "ndim", None) == 0


def _rewrite_of(operator: Any, rewrites: Mapping[Any, Rewrite]) -> Rewrite | None:
    """The rewrite of an operator; one that writes into its first argument has that of its namesake which does not."""
    if operator in rewrites or not isinstance(operator, torch._ops.OpOverload):
        return rewrites.get(operator)
    function = rewrites.get(out_of_place(operator))
    if function is None:
        return None

    @functools.wraps(function)
    def in_place(self: torch.Tensor, **settings: Any) -> Any:
        result = function(self, **settings)
        return result if result is NotImplemented else self.copy_(result)

    return in_place


def out_of_place(operator: torch._ops.OpOverload) -> Any:
    """`aten::relu` for `aten::relu_`; None for what is not of that kind."""
    schema = operator._schema
    name = schema.name.removeprefix("aten::")
    written = [argument.name for argument in schema.arguments if argument.alias_info is not None]
    if not name.endswith("_") or name.startswith("_") or written != ["self"]:
        return None
    return getattr(getattr(torch.ops.aten, name[:-1], None), operator._overloadname, None)


class Replaced(TorchFunctionMode):
    """Within it, functions that torch cannot capture are traced as others, which return the same."""

    def __init__(self, functions: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        # A plain one, since torch traces through this mode inside the branches of torch.cond.
        self._functions = dict(functions)

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        replacement = self._functions.get(func)
        if replacement is not None:
            result = replacement(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        return func(*args, **(kwargs or {}))


def _replace(graph: torch.fx.Graph, node: torch.fx.Node, function: Rewrite) -> None:
    operands: list[torch.fx.Node] = []
    names = [formal.name for formal in node.target._schema.arguments]  # type: ignore[union-attr]  # an overload
    keywords = set(inspect.signature(function).parameters)
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
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
            result = results[user.args[1]]  # type: ignore[index]  # operator.getitem of a number
            if result is None and user.users:
                raise UnsupportedModelError(f"Output {user.args[1]} of {node.target} is not exported.")
            if result is not None:
                user.replace_all_uses_with(result)
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
            elif inner.op == "output":
                return torch.fx.map_arg(inner.args[0], lambda operand: copies[operand])
            else:
                copy = graph.node_copy(inner, lambda operand: copies[operand])
                # The place in the user's module that the new nodes are named after.
                copy.meta.update({name: node.meta[name] for name in _ORIGIN if name in node.meta})
                copies[inner] = copy
    raise AssertionError("A traced graph has an output.")


_ORIGIN = ("nn_module_stack", "stack_trace", "source_fn_stack", "from_node", "torch_fn")
