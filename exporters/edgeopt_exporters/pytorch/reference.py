"""The module itself, to compare its export with."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from edgeopt_exporters.pytorch.inputs import Examples
from edgeopt_exporters.pytorch.module import Returned, in_mode
from edgeopt_exporters.pytorch.precision import Precision
from edgeopt_exporters.pytorch.preserved import Snapshot, preserved
from edgeopt_exporters.pytorch.quartile import Quartiles
from edgeopt_exporters.pytorch.sizes import resized
from edgeopt_exporters.verification import ReferenceFailed, Trained
from edgeopt_exporters.verification.reference import Arrays

__all__ = ["ModuleReference"]


class ModuleReference:
    """A module, called with examples of any size; it stays as it is.

    Args:
        module: The module.
        examples: Its inputs.
        outputs: Names of its outputs in training (True) and in evaluation (False).
        evaluating: Parts that are in evaluation mode in training too: those whose statistics are frozen.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        examples: Examples,
        outputs: Mapping[bool, Sequence[str]],
        evaluating: Collection[str] = (),
    ) -> None:
        self._module, self._examples, self._outputs = module, examples, outputs
        self._evaluating = evaluating
        self._values: Arrays = {}
        self._precision = Precision()
        self._taken: Snapshot | None = None

    @property
    def _snapshot(self) -> Snapshot:
        # Taken once, since it copies everything.
        self._taken = self._taken or Snapshot(self._module)
        return self._taken

    @property
    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """Every parameter and buffer, in the module's own memory."""
        return {name: _as_numpy(tensor) for name, tensor in _named(self._module).items()}

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each symbolic dimension in the examples."""
        return {
            symbol: tensor.shape[axis]
            for tensor, own in zip(self._examples.tensors, self._examples.dimensions, strict=True)
            for axis, symbol in own.items()
        }

    @property
    def asked(self) -> frozenset[str]:
        """The symbolic dimensions that were asked for."""
        examples = self._examples
        return frozenset(examples.dimensions[examples.names.index(name)][axis] for name, axis in examples.asked)

    @property
    def epsilon(self) -> float:
        """The relative spacing of the coarsest type that numbers were converted to in the runs so far, or zero."""
        return self._precision.epsilon

    def with_frozen(self, statistics: Collection[str]) -> ModuleReference:
        """The same, where the parts that own these buffers are in evaluation mode in training too."""
        parts = {name.rpartition(".")[0] for name in statistics}
        return ModuleReference(self._module, self._examples, self._outputs, parts).with_values(self._values)

    def with_values(self, values: Arrays) -> ModuleReference:
        """The same, with other values of some parameters."""
        other = copy.copy(self)
        other._values = {**self._values, **values}
        return other

    def inputs(self, sizes: Mapping[str, int]) -> dict[str, np.ndarray[Any, Any]]:
        """The examples at other sizes, repeated or cut.

        An example of one number only, all zeros say, proves little: at another size it is made of different ones.
        """
        tensors = resized(self._examples, sizes)
        if sizes:
            generator = torch.Generator().manual_seed(0)
            tensors = _told_apart([_varied(tensor, generator) for tensor in tensors])
        return {name: _to_numpy(tensor) for name, tensor in zip(self._examples.names, tensors, strict=True)}

    def predict(self, inputs: Arrays, nudge: float = 0.0) -> dict[str, np.ndarray[Any, Any]]:
        """Outputs in evaluation mode."""
        with self._run(training=False, nudge=nudge), torch.no_grad():
            outputs = self._call(inputs, nudge, training=False)
            return {name: _to_numpy(tensor) for name, tensor in outputs.items()}

    def train(
        self,
        inputs: Arrays,
        cotangents: Callable[[Arrays], Arrays],
        wanted: Collection[str],
        nudge: float = 0.0,
        state: Collection[str] | None = None,
    ) -> Trained:
        """Forward and backward in training mode."""
        with self._run(training=True, nudge=nudge):
            parameters = dict(self._module.named_parameters())
            for name in wanted:
                parameters[name].requires_grad_()
            for parameter in parameters.values():
                parameter.grad = None
            with torch.enable_grad():
                outputs = self._call(inputs, nudge, training=True)
                arrays = {name: _to_numpy(tensor) for name, tensor in outputs.items()}
                seeds = {name: torch.from_numpy(np.array(array)) for name, array in cotangents(arrays).items()}
                reached = {name: seed for name, seed in seeds.items() if outputs[name].requires_grad}
                if reached:
                    torch.autograd.backward([outputs[name] for name in reached], list(reached.values()))
            named = _named(self._module)
            if state is None:
                state = [name for name, tensor in named.items() if not self._snapshot.has(name, tensor)]
            return Trained(
                state={name: _to_numpy(named[name]) for name in state},
                gradients={name: _gradient(parameters[name]) for name in wanted},
            )

    def _call(self, inputs: Arrays, nudge: float, *, training: bool) -> dict[str, torch.Tensor]:
        tensors = [torch.from_numpy(np.array(inputs[name])) for name in self._examples.names]
        if nudge:
            tensors = [_nudged(tensor, nudge) for tensor in tensors]
        returned = Returned.of(self._examples.call(self._module, tensors))
        return dict(zip(self._outputs[training], returned.tensors, strict=True))

    @contextlib.contextmanager
    def _run(self, *, training: bool, nudge: float) -> Iterator[None]:
        """Everything as in training or evaluation, and as it was afterwards; what goes wrong is `ReferenceFailed`."""
        quartiles = Quartiles()
        try:
            with (
                preserved(self._module, self._snapshot),
                _no_fast_path(),
                _one_thread(),
                in_mode(self._module, training=training),
                warnings.catch_warnings(),
                quartiles,
                self._precision,
            ):
                warnings.simplefilter("ignore")
                for name in self._evaluating:
                    self._module.get_submodule(name).eval()
                if self._values:
                    with torch.no_grad():
                        parameters = dict(self._module.named_parameters())
                        for name, value in self._values.items():
                            parameters[name].copy_(torch.from_numpy(np.array(value)))
                if nudge:
                    with torch.no_grad():
                        for parameter in self._module.parameters():
                            parameter.copy_(_nudged(parameter, nudge))
                yield
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            message = str(error).strip().split("\n")[0][:300]
            raise ReferenceFailed(f"{type(error).__name__}: {message}") from error
        if quartiles.unknown:
            raise ReferenceFailed(f"it draws random numbers by {', '.join(sorted(quartiles.unknown))}")


@contextlib.contextmanager
def _no_fast_path() -> Iterator[None]:
    """Transformer layers as they train.

    In evaluation they take fused kernels, which give NaN where everything is hidden from a position.
    """
    enabled: bool = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Small work is soon done by one thread; several wait long for each other where other programs keep cores busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _varied(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Numbers between zero and one in place of a constant."""
    if not tensor.is_floating_point() or tensor.ndim == 0 or not bool((tensor == tensor.flatten()[:1]).all()):
        return tensor
    return torch.rand(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.dtype)


def _told_apart(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Of equal ones the later are shifted, so that an input taken for another one shows."""
    apart: list[torch.Tensor] = []
    for tensor in tensors:
        shifts = range(min(tensor.numel(), len(tensors) + 1))
        tried = (tensor.flatten().roll(shift).reshape(tensor.shape) for shift in shifts)
        other = (shifted for shifted in tried if not any(torch.equal(shifted, earlier) for earlier in apart))
        apart.append(next(other, tensor))
    return tuple(apart)


def _nudged(tensor: torch.Tensor, nudge: float) -> torch.Tensor:
    """Each element by a factor of its own, since a norm would undo a common one; but equal ones by the same.

    The factor is a function of the magnitude, so that ties and zeros stay, and another one for each nudge.
    """
    if not tensor.is_floating_point():
        return tensor
    frequency = 1e4 * nudge / torch.finfo(tensor.dtype).eps
    return tensor * (1.0 + nudge * torch.cos(frequency * tensor))


def _named(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _gradient(parameter: torch.Tensor) -> np.ndarray[Any, Any]:
    # Not copied: the next run makes another one.
    return _as_numpy(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense())


def _to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return np.array(_as_numpy(tensor))


def _as_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The tensor's own memory where it is on the CPU."""
    tensor = tensor.detach().cpu()
    # numpy has no bfloat16; float32 holds it.
    array: np.ndarray[Any, Any] = (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()
    return array
