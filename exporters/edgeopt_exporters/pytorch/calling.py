"""How a module is called: which module there is inside its wrappers, and a call as a list of named tensors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from edgeopt.errors import SignatureError, UnsupportedModelError

__all__ = ["Call", "bind_call", "unwrapped"]

# What may stand in a call beside tensors, and keeps the value it has there.
_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, np.generic)
_VARIADIC = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


@dataclass(frozen=True)
class Call:
    """One call of a module, with places for its tensors.

    Attributes:
        names: The names of the tensors: the parameter's of `forward`; inside a list `name_0`, `name_1`, inside a dict
            `name.key`, inside a NamedTuple `name.field`.
        constants: The other values that were given, by such names. They are part of the call.
    """

    names: tuple[str, ...]
    constants: Mapping[str, Any]
    _signature: inspect.Signature
    _parameters: tuple[str, ...]
    _structure: pytree.TreeSpec
    _leaves: tuple[Any, ...]
    _places: tuple[int, ...]

    def __call__(self, module: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> Any:
        """Call the module with these tensors in the order of `names`."""
        positional, named = self.arguments(tensors)
        if torch.compiler.is_exporting():
            return module(*positional, **named)
        # What `torch.compile` would make of it takes a minute, and computes the same.
        with torch.compiler.set_stance("force_eager"):
            return module(*positional, **named)

    def arguments(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments of a call with these tensors."""
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        values = pytree.tree_unflatten(leaves, self._structure)
        bound = inspect.BoundArguments(self._signature, dict(zip(self._parameters, values, strict=True)))
        return bound.args, bound.kwargs


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The module inside DataParallel, DistributedDataParallel and `torch.compile`, which compute what it computes."""
    while True:
        if isinstance(module, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
            module = module.module
        elif (inner := dict(module.named_children()).get("_orig_mod")) is not None:
            module = inner
        else:
            return module


def bind_call(module: torch.nn.Module, example_inputs: Any) -> tuple[Call, tuple[torch.Tensor, ...]]:
    """Match examples with the parameters of `module.forward`; the tensors are copies.

    A copy for each place: torch takes one tensor given for two parameters, and two views of one memory, for one input.

    Raises:
        SignatureError: The examples fit no call, or hold what is neither a tensor nor a constant.
        UnsupportedModelError: forward is no Python function.
    """
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError) as error:
        raise UnsupportedModelError(f"{type(module).__name__}.forward has no signature in Python: {error}.") from error
    bound = _bind(module, signature, example_inputs)
    parameters = tuple(bound.arguments)
    with_paths, structure = pytree.tree_flatten_with_path(tuple(bound.arguments.values()))
    leaves = [leaf for _, leaf in with_paths]
    names = [_name(parameters, path, signature) for path, _ in with_paths]
    places = tuple(place for place, leaf in enumerate(leaves) if isinstance(leaf, (torch.Tensor, np.ndarray)))
    _refuse_objects(names, leaves, places)
    tensors = tuple(_own(names[place], leaves[place]) for place in places)
    call = Call(
        names=tuple(names[place] for place in places),
        constants={names[place]: leaf for place, leaf in enumerate(leaves) if place not in places},
        _signature=signature,
        _parameters=parameters,
        _structure=structure,
        _leaves=tuple(None if place in places else leaf for place, leaf in enumerate(leaves)),
        _places=places,
    )
    if all(parameter.kind in _VARIADIC for parameter in signature.parameters.values()):
        call = replace(call, names=_forwarded_names(module, call, tensors) or call.names)
    _refuse_doubled(call.names)
    return call, tensors


def _bind(module: torch.nn.Module, signature: inspect.Signature, example_inputs: Any) -> inspect.BoundArguments:
    try:
        if isinstance(example_inputs, Mapping):
            named = dict(example_inputs)
            first = [
                named.pop(name)
                for name, parameter in signature.parameters.items()
                if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and name in named
            ]
            return signature.bind(*first, **named)
        if isinstance(example_inputs, Sequence) and not isinstance(example_inputs, (str, bytes)):
            return signature.bind(*example_inputs)
        return signature.bind(example_inputs)
    except TypeError as error:
        what = f"The example inputs do not fit {type(module).__name__}.forward{signature}: {error}."
        raise SignatureError(what + _advice(example_inputs)) from error


def _advice(example_inputs: Any) -> str:
    """What examples that fit no call were probably meant to be."""
    if isinstance(example_inputs, Sequence) and example_inputs and all(type(size) is int for size in example_inputs):
        return f" A shape is no example; give a tensor, torch.zeros({', '.join(map(str, example_inputs))})."
    if isinstance(example_inputs, Mapping):
        return (
            " Give what forward takes, without the targets, which the loss asks for. Where it takes the dict itself as "
            "one argument, give it in a tuple: (examples,)."
        )
    if isinstance(example_inputs, Sequence):
        return (
            " Give what forward takes, without the targets, which the loss asks for: batch[0] of a batch (x, y). Where "
            f"it takes the {type(example_inputs).__name__} itself as one argument, give it in a tuple: (examples,)."
        )
    return ""


def _name(parameters: Sequence[str], path: Sequence[Any], signature: inspect.Signature) -> str:
    """The name of a leaf: its parameter, which the path begins with, and the way from there."""
    parameter: str = parameters[path[0].idx]
    path = path[1:]
    kind = signature.parameters[parameter].kind
    if kind is inspect.Parameter.VAR_KEYWORD:
        parameter, path = str(path[0].key), path[1:]
    elif kind is inspect.Parameter.VAR_POSITIONAL and all(p.kind in _VARIADIC for p in signature.parameters.values()):
        parameter, path = f"input_{path[0].idx}" if path[0].idx else "input", path[1:]
    for step in path:
        parameter += f"_{step.idx}" if isinstance(step, pytree.SequenceKey) else f".{_key(step)}"
    return parameter


def _key(step: Any) -> str:
    return str(step.key if isinstance(step, pytree.MappingKey) else getattr(step, "name", step))


def _own(name: str, leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().clone()
    try:
        return torch.from_numpy(leaf.copy())
    except TypeError as error:
        raise SignatureError(f"The example for input {name!r} is an array of {leaf.dtype}: {error}") from error


def _refuse_objects(names: Sequence[str], leaves: Sequence[Any], places: Sequence[int]) -> None:
    for place, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        if place not in places and not isinstance(leaf, _CONSTANTS):
            if isinstance(leaf, (torch.utils.data.DataLoader, torch.utils.data.Dataset)):
                advice = "give the inputs of one batch of it, without the targets: x, y = next(iter(loader))"
            else:
                advice = (
                    "give a torch.Tensor, or lists, tuples and dicts of them. Other objects belong into the module (a "
                    "small wrapper module)"
                )
            raise SignatureError(f"The example for input {name!r} is a {type(leaf).__name__}; {advice}.")
    if not places:
        given = " and ".join(f"{name!r} is a {type(leaf).__name__}" for name, leaf in zip(names, leaves, strict=True))
        is_shape = bool(leaves) and all(type(leaf) is int for leaf in leaves)
        advice = _advice(leaves) if is_shape else " A step needs data; give tensors or arrays."
        raise SignatureError(f"The examples hold no tensor ({given or 'nothing was given'}).{advice}")


def _refuse_doubled(names: Sequence[str]) -> None:
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise SignatureError(f"Several inputs would be called {doubled}; rename arguments of forward or keys.")


class _ReachedError(Exception):
    """Ends a call where the names that it needed are known."""

    def __init__(self, names: tuple[str, ...] | None) -> None:
        super().__init__()
        self.names = names


def _forwarded_names(module: torch.nn.Module, call: Call, tensors: tuple[torch.Tensor, ...]) -> tuple[str, ...] | None:
    """The names that the first module inside gives these tensors, if it gets all of them: wrappers only forward.

    The call ends there, before anything is computed.
    """
    wanted = {id(tensor) for tensor in tensors}

    def look(part: torch.nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        if {id(tensor) for tensor in _tensors((positional, named))} != wanted:
            raise _ReachedError(None)
        signature = inspect.signature(part.forward)
        if any(parameter.kind not in _VARIADIC for parameter in signature.parameters.values()):
            bound = signature.bind(*positional, **named)
            with_paths, _ = pytree.tree_flatten_with_path(tuple(bound.arguments.values()))
            parameters = tuple(bound.arguments)
            found = {id(leaf): _name(parameters, path, signature) for path, leaf in with_paths}
            raise _ReachedError(tuple(found[id(tensor)] for tensor in tensors))

    inside = [part for part in module.modules() if part is not module]
    hooks = [part.register_forward_pre_hook(look, with_kwargs=True) for part in inside]
    try:
        with torch.no_grad():
            call(module, tensors)
    except _ReachedError as reached:
        return reached.names
    except Exception:  # whatever forward raises, it raises again where it is explained
        return None
    finally:
        for hook in hooks:
            hook.remove()
    return None


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    yield from (leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor))
