"""A module as it was: whatever happens to it meanwhile, by forward or by tracing it, is undone."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

__all__ = ["Snapshot", "global_state", "preserved"]

# What is held by many and changed by none, or is looked after elsewhere.
_OPAQUE = (type, torch.dtype, torch.device, torch.Size, np.ndarray, str, bytes, int, float, complex, bool)
# Integers with the bits of a floating-point number of so many bytes.
_OF_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_PLAIN = (int, float, complex, bool, str, bytes, type(None))


@contextmanager
def preserved(module: torch.nn.Module, snapshot: Snapshot | None = None) -> Iterator[Snapshot]:
    """Within it, the module may be run or traced; afterwards it and torch's global settings are as they were.

    That is parameters, buffers and tensors in attributes (identity, value, `requires_grad` and `grad`), attributes of
    every part, with the lists, dicts and objects that they hold, modes, the states of global random generators, the
    default dtype, and whether gradients are recorded. It is so, too, if an exception leaves the context.

    Args:
        module: The module.
        snapshot: What to go back to, if it was taken before and the module is still like that. Taking one copies all.
    """
    restart = global_state()
    snapshot = snapshot or Snapshot(module)
    try:
        yield snapshot
    finally:
        snapshot.restore()
        restart()


class Snapshot:
    """A module's tensors and attributes at one time.

    Attributes:
        parameters: Its parameters, by every name that they have.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._holders: dict[int, _Holder] = {}
        self._tensors: dict[int, _Tensor] = {}
        self._walk(module, "")
        self.parameters = dict(module.named_parameters(remove_duplicate=False))
        self._state = {**self.parameters, **dict(module.named_buffers(remove_duplicate=False))}

    def restore(self, *, attributes: bool = True) -> None:
        """Undo what has happened since.

        Args:
            attributes: Whether attributes of Python go back too; the values of parameters and buffers do in any case.
        """
        for holder in self._holders.values():
            if attributes or holder.is_state:
                holder.restore()
        for tensor in self._tensors.values():
            if attributes or tensor.is_state:
                tensor.restore()

    def has(self, name: str, tensor: torch.Tensor) -> bool:
        """Whether this tensor is the parameter or buffer of this name, with the same numbers in it."""
        return self._state.get(name) is tensor and self._tensors[id(tensor)].is_unchanged()

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """Attributes that are no parameters, buffers or modules and are others now, by path: before and after."""
        found: dict[str, tuple[Any, Any]] = {}
        for holder in self._holders.values():
            if not holder.is_state:
                found.update(holder.changed())
        for tensor in self._tensors.values():
            if not tensor.is_state and not tensor.is_unchanged():
                found.setdefault(tensor.path, (tensor.value, tensor.tensor))
        return found

    def _walk(self, value: Any, path: str, *, is_state: bool = False) -> None:
        if isinstance(value, torch.Tensor):
            known = self._tensors.get(id(value))
            if known is None:
                self._tensors[id(value)] = _Tensor.of(value, path, is_state)
            return
        if value is None or isinstance(value, _OPAQUE) or id(value) in self._holders:
            return
        if not isinstance(value, (dict, list, set, deque, tuple)) and not _has_attributes(value):
            return
        holder = _Holder(value, path, is_state)
        self._holders[id(value)] = holder
        for name, item in holder.items():
            state = is_state or (isinstance(value, torch.nn.Module) and name in ("_parameters", "_buffers"))
            inner = path if name in ("_parameters", "_buffers", "_modules") else _join(path, name, value)
            self._walk(item, inner, is_state=state)


def _has_attributes(value: Any) -> bool:
    """Whether a value is an object of somebody's own with attributes that may change."""
    if isinstance(value, torch.nn.Module):
        return True
    own = type(value).__module__.split(".")[0]
    return hasattr(value, "__dict__") and own not in ("torch", "numpy", "builtins", "functools", "types", "inspect")


def _join(path: str, name: str, holder: Any) -> str:
    if isinstance(holder, (dict, list, deque, tuple)):
        return f"{path}[{name}]" if path and not isinstance(holder, torch.nn.Module) else f"{path}.{name}".strip(".")
    return f"{path}.{name}".strip(".")


class _Holder:
    """Something that holds values under names or at positions, and what it held."""

    def __init__(self, value: Any, path: str, is_state: bool) -> None:
        self.value, self.path, self.is_state = value, path, is_state
        self._content: Any = self._copy()

    def _own(self) -> Any:
        return self.value if isinstance(self.value, (dict, list, set, deque, tuple)) else self.value.__dict__

    def _copy(self) -> Any:
        own = self._own()
        return own if isinstance(own, tuple) else own.copy()

    def items(self) -> Iterator[tuple[str, Any]]:
        content = self._content
        if isinstance(content, dict):
            # The keys of parameters and parts are names already.
            plain = isinstance(self.value, dict) and not self.is_state
            yield from (
                (repr(key) if plain and not isinstance(key, str) else str(key), v) for key, v in content.items()
            )
        else:
            yield from ((str(index), item) for index, item in enumerate(content))

    def restore(self) -> None:
        own = self._own()
        if isinstance(own, tuple):
            return
        if isinstance(own, dict):
            if list(own.items()) != _Same(self._content.items()):
                own.clear()
                own.update(self._content)
        elif list(own) != _Same(self._content):
            own.clear()
            own.update(self._content) if isinstance(own, set) else own.extend(self._content)

    def changed(self) -> Iterator[tuple[str, tuple[Any, Any]]]:
        own = self._own()
        if isinstance(own, dict):
            part = isinstance(self.value, torch.nn.Module)
            for key in dict.fromkeys([*self._content, *own]):
                if part and key == "training":
                    continue
                before, after = self._content.get(key), own.get(key)
                if before is not after and not (isinstance(before, _PLAIN) and _equal(before, after)):
                    yield _join(self.path, str(key), self.value), (before, after)
        elif list(own) != _Same(self._content):
            yield self.path, (self._content, own)


class _Same:
    """Equal to a sequence of the very same objects."""

    def __init__(self, items: Any) -> None:
        self._items = list(items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list) or len(other) != len(self._items):
            return False
        pairs = zip(other, self._items, strict=True)
        return all(a[1] is b[1] and a[0] == b[0] if isinstance(a, tuple) else a is b for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]  # it is compared only


def _equal(before: Any, after: Any) -> bool:
    return type(before) is type(after) and bool(before == after)


class _Tensor(NamedTuple):
    """A tensor, the memory that it had, and what was in it."""

    tensor: torch.Tensor
    path: str
    is_state: bool
    memory: torch.Tensor
    value: torch.Tensor
    requires_grad: bool
    grad: torch.Tensor | None
    grad_value: torch.Tensor | None

    @classmethod
    def of(cls, tensor: torch.Tensor, path: str, is_state: bool) -> _Tensor:
        grad = tensor.grad if tensor.is_leaf else None
        memory = tensor.detach()
        copy = None if grad is None else grad.detach().clone()
        return cls(tensor, path, is_state, memory, memory.clone(), tensor.requires_grad, grad, copy)

    def is_unchanged(self) -> bool:
        tensor, memory = self.tensor, self.memory
        same = (tensor.shape, tensor.dtype, tensor.device) == (memory.shape, memory.dtype, memory.device)
        if not same or tensor.is_meta:
            return same
        return tensor.data_ptr() == memory.data_ptr() and _same_bits(tensor.detach(), self.value)

    def restore(self) -> None:
        tensor = self.tensor
        with torch.no_grad():
            if not self.is_unchanged():
                self.memory.copy_(self.value)
                # By `data`, since the tensor may be a leaf that records gradients.
                tensor.data = self.memory
            if tensor.is_leaf and tensor.requires_grad != self.requires_grad:
                tensor.requires_grad_(self.requires_grad)
            if tensor.is_leaf:
                grad, value = self.grad, self.grad_value
                if grad is not None and value is not None and not _same_bits(grad.detach(), value):
                    grad.copy_(value)
                if tensor.grad is not self.grad:
                    tensor.grad = self.grad


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape and type are equal, NaN being equal to itself."""
    if one.layout is not torch.strided:
        return False
    if integers := _OF_SIZE.get(one.element_size()) if one.is_floating_point() else None:
        return torch.equal(one.view(integers), other.view(integers))
    return torch.equal(one, other) or (
        torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(), other.nan_to_num())
    )


def global_state() -> Callable[[], None]:
    """How to put the random generators and torch's settings back to what they are now."""
    dtype, recording = torch.get_default_dtype(), torch.is_grad_enabled()
    cpu, own, numpys = torch.get_rng_state(), random.getstate(), np.random.get_state()  # put back only
    initialized: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    has_devices = torch.cuda.is_available() and initialized
    devices = torch.cuda.get_rng_state_all() if has_devices else []

    def restart() -> None:
        torch.set_rng_state(cpu)
        random.setstate(own)
        np.random.set_state(numpys)  # put back only
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(recording)
        if has_devices:
            torch.cuda.set_rng_state_all(devices)

    return restart
