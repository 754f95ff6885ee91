"""Calls in forward that torch.export does not see, or takes for something else, while it is run or captured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import GetSetDescriptorType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from edgeopt.errors import UnsupportedModelError
from edgeopt_exporters.pytorch.hooks import INSTEAD

__all__ = ["TensorCalls", "inference_as_no_grad", "own_gradients_refused"]

_DATA: Any = torch.Tensor.data
_GRAD_FN: Any = torch.Tensor.grad_fn
_HOOKS = ("register_hook", "register_post_accumulate_grad_hook")


class TensorCalls(TorchFunctionMode):
    """What forward does with tensors beside computing: said so that it is captured, or refused.

    Args:
        module: Whose forward it is, for names.
        capturing: Whether it is captured. Otherwise it runs as it is, and only what cannot be exported is refused.
    """

    def __init__(self, module: torch.nn.Module, *, capturing: bool) -> None:
        super().__init__()
        self._module, self._capturing = module, capturing

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Every call of torch that involves a tensor."""
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        attribute: Any = getattr(func, "__self__", None)
        if name in _HOOKS and args and isinstance(args[0], torch.Tensor):
            raise UnsupportedModelError(f"forward calls {name} on {self._called(args[0])}. {INSTEAD}")
        # A descriptor, which attributes of a tensor are read and written by.
        attribute = attribute if isinstance(attribute, GetSetDescriptorType) else None
        if attribute is _GRAD_FN and name == "__get__":
            return _watched(func(*args, **kwargs), self._called(args[0]))
        if func is torch.autograd.grad:
            raise UnsupportedModelError(
                "forward computes derivatives itself (torch.autograd.grad), which a captured program does not follow. "
                "Write the derivative out as a formula in forward."
            )
        if self._capturing:
            if attribute is _DATA:
                return args[0].detach() if name == "__get__" else self._assign(args[0], args[1])
            if name.startswith("_foreach_"):
                return _one_by_one(name.removeprefix("_foreach_"), args, kwargs)
        return func(*args, **kwargs)

    def _called(self, tensor: torch.Tensor) -> str:
        named = [*self._module.named_parameters(), *self._module.named_buffers()]
        name = next((name for name, own in named if own is tensor), None)
        return f"a tensor of shape {tuple(tensor.shape)}" if name is None else repr(name)

    def _assign(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """`tensor.data = value`, of which a graph knows the values."""
        if value.dtype != tensor.dtype or value.dim() != tensor.dim() or value.device != tensor.device:
            raise UnsupportedModelError(
                f"forward assigns to the data of {self._called(tensor)} what has another type or shape "
                f"({value.dtype}, {value.dim()} axes); what is trained keeps them."
            )
        with torch.no_grad():
            tensor.copy_(value)


def _one_by_one(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor] | None:
    """`torch._foreach_NAME` as what it does for each tensor."""
    tensors = list(args[0] if args else kwargs.pop("self"))

    def nth(value: Any, position: int) -> Any:
        return value[position] if isinstance(value, (list, tuple)) else value

    results = []
    for position, tensor in enumerate(tensors):
        others = [nth(value, position) for value in args[1:]]
        own = {key: nth(value, position) for key, value in kwargs.items()}
        if name == "norm":
            results.append(torch.linalg.vector_norm(tensor, *others, **own))
        elif name in ("addcmul", "addcdiv", "addcmul_", "addcdiv_") and len(others) > 2:
            results.append(getattr(tensor, name)(*others[:2], value=others[2], **own))
        else:
            results.append(getattr(tensor, name)(*others, **own))
    return None if name.endswith("_") else results


class _Node:
    """A node of autograd's graph that cannot be hooked."""

    def __init__(self, node: Any, tensor: str) -> None:
        self._node, self._tensor = node, tensor

    def __getattr__(self, name: str) -> Any:
        if name in ("register_hook", "register_prehook"):
            raise UnsupportedModelError(f"forward calls {name} on the grad_fn of {self._tensor}. {INSTEAD}")
        return getattr(self._node, name)


def _watched(node: Any, tensor: str) -> Any:
    return None if node is None else _Node(node, tensor)


@contextmanager
def inference_as_no_grad() -> Iterator[None]:
    """Within it, `torch.inference_mode` switches gradients off like `no_grad`, which is what a capture sees."""
    original = {name: torch.inference_mode.__dict__[name] for name in ("__enter__", "__exit__")}

    def enter(self: Any) -> None:
        self._recording = torch.is_grad_enabled()
        torch.set_grad_enabled(not self.mode)

    def leave(self: Any, *problem: object) -> None:
        torch.set_grad_enabled(self._recording)

    try:
        torch.inference_mode.__enter__ = enter  # type: ignore[method-assign]  # put back below
        torch.inference_mode.__exit__ = leave  # type: ignore[method-assign]  # put back below
        yield
    finally:
        for name, method in original.items():
            setattr(torch.inference_mode, name, method)


@contextmanager
def own_gradients_refused() -> Iterator[None]:
    """Within it, a backward pass that forward runs itself raises: what it leaves in `grad` is no part of a graph."""
    original = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> None:
        raise UnsupportedModelError(
            "forward runs a backward pass of its own (Tensor.backward, torch.autograd.backward), which writes into "
            "`grad`. Leave that to training, or write the derivative out as a formula."
        )

    torch.autograd.backward = backward
    try:
        yield
    finally:
        torch.autograd.backward = original
