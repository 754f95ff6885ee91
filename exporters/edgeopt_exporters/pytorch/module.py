"""The module as the exporter sees it: flat outputs, and every buffer's new value among them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from edgeopt.errors import SignatureError
from edgeopt_exporters.pytorch.calling import Call
from edgeopt_exporters.pytorch.explaining import failed_call
from edgeopt_exporters.pytorch.inputs import Examples

__all__ = ["PREFIX", "Exported", "in_mode", "named_outputs", "output_names"]

# Initializers come out as `module.<the module's own name>`.
PREFIX = "module."


class Exported(torch.nn.Module):
    """Calls the module with its inputs by position; returns its tensors flat, then its buffers as the call leaves them.

    Cloning a buffer after the call makes its new value an ordinary output of the exported graph, so that running
    statistics, counters and anything else a module keeps become state like the rest.
    """

    def __init__(self, module: torch.nn.Module, call: Call, with_buffers: bool) -> None:
        super().__init__()
        self.module = module
        self._call = call
        self._with_buffers = with_buffers
        self.train(module.training)

    def train(self, mode: bool = True) -> Exported:
        """Set only this wrapper's flag; the module inside keeps the modes it has."""
        self.training = mode
        return self

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Flat outputs, then buffers."""
        outputs = self._call(self.module, inputs)
        buffers = [buffer.clone() for buffer in self.module.buffers()] if self._with_buffers else []
        return (*(tensor for _, tensor in _named_tensors(outputs)), *buffers)


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


def named_outputs(
    module: torch.nn.Module, examples: Examples, tensors: Sequence[torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The tensors that one call of the module with these inputs returns, by name."""
    return dict(_named_tensors(examples.call(module, tensors)))


def output_names(module: torch.nn.Module, examples: Examples) -> tuple[str, ...]:
    """Names of the module's outputs, found by one call in evaluation mode.

    Raises:
        SignatureError: The call fails, or returns no tensor.
    """
    with in_mode(module, training=False), torch.no_grad():
        try:
            found = tuple(named_outputs(module, examples, examples.tensors))
        except Exception as error:  # whatever forward raises
            raise SignatureError(failed_call(module, error)) from error
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
