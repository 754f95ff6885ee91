"""The module as the exporter sees it: flat outputs, and the new values of its state among them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from edgeopt.errors import SignatureError
from edgeopt_exporters.pytorch.calling import Call
from edgeopt_exporters.pytorch.calls import TensorCalls

__all__ = ["PREFIX", "Exported", "Returned", "alike", "in_mode"]

# Initializers come out as `module.<the module's own name>`.
PREFIX = "module."


class Exported(torch.nn.Module):
    """Calls the module with its inputs by position; returns its tensors flat, then its state as the call leaves it.

    Cloning a buffer after the call makes its new value an ordinary output of the exported graph, so that running
    statistics, counters and anything else a module keeps become state like the rest. So do parameters that forward
    writes into.
    """

    def __init__(self, module: torch.nn.Module, call: Call) -> None:
        super().__init__()
        self.module = module
        self._call = call
        self.train(module.training)

    def train(self, mode: bool = True) -> Exported:
        """Set only this wrapper's flag; the module inside keeps the modes it has."""
        self.training = mode
        return self

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Flat outputs, then buffers, then parameters."""
        with TensorCalls(self.module, capturing=True):
            outputs = self._call(self.module, inputs)
        buffers = [buffer.clone() for buffer in self.module.buffers()]
        parameters = [parameter.detach().clone() for parameter in self.module.parameters()]
        return (*Returned.of(outputs).tensors, *buffers, *parameters)


@dataclass(frozen=True)
class Returned:
    """The tensors of whatever a module returns.

    Attributes:
        names: A name for each, its own or by its position.
        tensors: The tensors.
        named: Whether the names are the module's own.
    """

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    named: bool

    @classmethod
    def of(cls, outputs: Any) -> Returned:
        """Take apart a tensor, a dict, a dataclass, a tuple or a list.

        Raises:
            SignatureError: It is something else.
        """
        found = dict(_named_tensors(outputs))
        named = isinstance(outputs, Mapping) or _is_dataclass(outputs) or hasattr(outputs, "_fields")
        return cls(tuple(found), tuple(found.values()), named)

    def detached(self) -> Returned:
        """The same without what autograd keeps."""
        return Returned(self.names, tuple(tensor.detach() for tensor in self.tensors), self.named)

    def is_like(self, other: Returned) -> bool:
        """Whether two calls return the same but for rounding."""
        return self.names == other.names and all(
            alike(one, another) for one, another in zip(self.tensors, other.tensors, strict=True)
        )

    def described(self) -> str:
        """The outputs as a reader knows them: `logits (2, 10), aux (2, 10)`."""
        pairs = zip(self.names, self.tensors, strict=True)
        return ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in pairs)


def _named_tensors(outputs: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of whatever a module returns, each with a name of its own."""
    if not isinstance(outputs, (torch.Tensor, Mapping, Sequence)) and not _is_dataclass(outputs):
        raise SignatureError(
            f"The module returns a {type(outputs).__name__}; tensors can be exported, and tuples, lists, dicts and "
            "dataclasses of them."
        )
    taken: set[str] = set()
    for name, tensor in _flat("", outputs):
        while name in taken:
            name += "_"
        taken.add(name)
        yield name, tensor


def _flat(prefix: str, outputs: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors in nested containers, `key.field_0`; the first of a sequence at the top is `output`."""
    if isinstance(outputs, torch.Tensor):
        yield prefix or "output", outputs
        return
    items: list[tuple[Any, Any]] = []
    if isinstance(outputs, Mapping):
        items = list(outputs.items())
    elif _is_dataclass(outputs):
        items = [(field.name, getattr(outputs, field.name)) for field in dataclasses.fields(outputs)]
    elif (fields := getattr(outputs, "_fields", None)) is not None:
        items = list(zip(fields, outputs, strict=True))
    elif isinstance(outputs, Sequence) and not isinstance(outputs, (str, bytes)):
        items = list(enumerate(outputs))
        if not prefix and outputs and isinstance(outputs[0], torch.Tensor):
            items[0] = ("output", outputs[0])
    for key, value in items:
        if isinstance(key, str):
            yield from _flat(f"{prefix}.{key}" if prefix else key, value)
        else:
            yield from _flat(f"{prefix or 'output'}_{key}", value)


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same but for rounding."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return bool(torch.allclose(one, other, rtol=1e-5, atol=1e-7, equal_nan=True))


@contextmanager
def in_mode(module: torch.nn.Module, *, training: bool) -> Iterator[None]:
    """Put the module into training or evaluation mode, and back into its own modes afterwards.

    A module that is in training mode already keeps the modes of its parts: someone who has put a BatchNorm into
    evaluation mode wants its statistics frozen.
    """
    modes = {part: part.training for part in module.modules()}
    if not training:
        module.eval()
    elif not module.training:
        module.train()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
