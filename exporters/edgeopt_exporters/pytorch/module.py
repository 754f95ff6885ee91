"""The module as the exporter sees it: flat outputs, and every buffer's new value among them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from edgeopt.errors import SignatureError

__all__ = ["PREFIX", "Exported", "in_mode", "named_outputs", "output_names"]

# Initializers come out as `module.<the module's own name>`.
PREFIX = "module."


class Exported(torch.nn.Module):
    """Calls the module with its inputs by position; returns its tensors flat, then its buffers as the call leaves them.

    Cloning a buffer after the call makes its new value an ordinary output of the exported graph, so that running
    statistics, counters and anything else a module keeps become state like the rest.
    """

    def __init__(self, module: torch.nn.Module, names: Sequence[str], with_buffers: bool) -> None:
        super().__init__()
        self.module = module
        self._names = tuple(names)
        self._with_buffers = with_buffers
        self.train(module.training)

    def train(self, mode: bool = True) -> Exported:
        """Set only this wrapper's flag; the module inside keeps the modes it has."""
        self.training = mode
        return self

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Flat outputs, then buffers."""
        outputs = self.module(**dict(zip(self._names, inputs, strict=True)))
        buffers = [buffer.clone() for buffer in self.module.buffers()] if self._with_buffers else []
        return (*(tensor for _, tensor in _named_tensors(outputs)), *buffers)


def _named_tensors(outputs: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of whatever a module returns, each with a name."""
    if isinstance(outputs, torch.Tensor):
        yield "output", outputs
        return
    if isinstance(outputs, Mapping):
        items = list(outputs.items())
    elif dataclasses.is_dataclass(outputs) and not isinstance(outputs, type):
        items = [(field.name, getattr(outputs, field.name)) for field in dataclasses.fields(outputs)]
    elif isinstance(outputs, Sequence):
        fields = getattr(outputs, "_fields", None)
        names = fields or [f"output_{position}" if position else "output" for position in range(len(outputs))]
        items = list(zip(names, outputs, strict=True))
    else:
        raise SignatureError(
            f"The module returns a {type(outputs).__name__}; tensors, tuples and dicts can be exported."
        )
    for name, value in items:
        if isinstance(value, torch.Tensor):
            yield name, value


def named_outputs(
    module: torch.nn.Module, names: Sequence[str], inputs: Sequence[torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that one call of the module returns, each with its name."""
    return _named_tensors(module(**dict(zip(names, inputs, strict=True))))


def output_names(module: torch.nn.Module, names: Sequence[str], inputs: Sequence[torch.Tensor]) -> tuple[str, ...]:
    """Names of the module's outputs, found by one call in evaluation mode."""
    with in_mode(module, training=False), torch.no_grad():
        found = tuple(name for name, _ in named_outputs(module, names, inputs))
    if not found:
        raise SignatureError("The module returns no tensor.")
    return found


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
