"""Whether what a graph wrote may become the state: everything finite, and something counted.

A bundle's graphs that train report one number, the check, which is 0 if all that they write is finite; those of older
bundles do not, and only their loss and gradient norm are looked at. To look costs nothing. Who is to blame is found out
only when there is something to refuse, in the arrays themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeopt_runtime.manifest import Manifest, TensorSpec
from edgeopt_runtime.state import StateBuffers
from edgeopt_runtime.tensors import not_finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Guard"]

# Metrics that must be finite for a result to count.
GUARDED = ("loss", "grad_norm")

# What is named first where several tensors are not finite: causes before effects.
ORDER = ("accumulator", "parameter", "optimizer", "buffer")

BLAME = {
    "accumulator": "its slope is not finite there, as that of a root, a norm or a logarithm at 0, or it overflows",
    "parameter": "its gradient is not finite there, as at the root of 0, or the step is too large for {dtype}",
    "optimizer": "the gradient is not finite, or so large that the optimizer's arithmetic overflows {dtype}",
    "buffer": "an input or activation is not finite, or too large for {dtype}",
}


class Guard:
    """Judges the results of one graph.

    Attributes:
        metrics: The names of what the graph reports to the caller.

    Args:
        name: The graph's signature.
        manifest: The bundle's.
        state: The tensors.
    """

    def __init__(self, name: str, manifest: Manifest, state: StateBuffers) -> None:
        self.name, self.manifest, self.state = name, manifest, state
        # Looked up here once: a graph may have hundreds of outputs.
        outputs = manifest.signatures[name].outputs
        self.metrics = tuple(port.name for port in outputs if port.kind == "metric")
        self._checks = tuple(port.name for port in outputs if port.kind == "check")
        self._weight = next((port.weight for port in outputs if port.name == "loss"), None)

    def counts_nothing(self, numbers: Mapping[str, float]) -> bool:
        """Whether the batch weighed nothing, so that its mean loss is 0/0: every target was ignored."""
        if self._weight is not None:
            return numbers[self._weight] == 0
        totals = [share.weight for share in self.manifest.shares]
        if not totals or self.name == "step":
            return False
        if self.name == "apply":
            return all(bool(self.state.current(total) == 0) for total in totals)
        return all(bool(self.state.next(total) == self.state.current(total)) for total in totals)

    def alarms(self, numbers: Mapping[str, float], counted: bool) -> bool:
        """Whether a number says that something may not be finite.

        Args:
            numbers: What the graph gave.
            counted: Whether the loss is the mean of anything.
        """
        return self._metric(numbers, counted) is not None or any(numbers[name] != 0 for name in self._checks)

    def complaint(self, numbers: Mapping[str, float], counted: bool, since: str) -> str | None:
        """What is not finite and why, in words, after an alarm; None if it was a false one.

        Args:
            numbers: What the graph gave.
            counted: Whether the loss is the mean of anything.
            since: Since when the state may hold what is not finite.
        """
        held = self.held()
        if held is not None:
            return (
                f"This {self.name} cannot work, because {held} already, since {since}. The state was left as it was. "
                "Load a bundle that was saved before, or put sound weights there with `load_parameters`, and start the "
                "optimizer anew with `reset`."
            )
        metric = self._metric(numbers, counted)
        kept = "is as it was before" + (", and what was accumulated is dropped" if self.name == "apply" else "")
        if metric is not None:
            return (
                f"`{metric}` of this {self.name} is {numbers[metric]}; the state {kept}. Lower the learning "
                "rate, clip gradients, check the batch for NaN (and for a single sample, where a BatchNorm needs "
                'several), or load the session with on_nonfinite="skip".'
            )
        blamed = self._blamed()
        if blamed is None:
            return None
        spec, words = blamed
        finite = "The loss is finite, but this" if "loss" in numbers else "This"
        return (
            f"{finite} {self.name} would make {words}: {BLAME[spec.role].format(dtype=spec.dtype)}. The state "
            f"{kept}. Lower the learning rate, clip gradients, check the batch, or load the session with "
            'on_nonfinite="skip".'
        )

    def _metric(self, numbers: Mapping[str, float], counted: bool) -> str | None:
        bad = (key for key in GUARDED if key in numbers and not math.isfinite(numbers[key]))
        return next((key for key in bad if counted or key != "loss"), None)

    def held(self) -> str | None:
        """What is not finite before the graph ran: NaN anywhere, or an infinite weight."""
        for spec in self._specs(port.name for port in self.manifest.signatures[self.name].inputs):
            array = self.state.current(spec.name)
            wrong = not_finite(array, spec.dtype)
            if spec.role != "accumulator" and wrong.any() and (spec.trainable or _has_nan(array, spec.dtype)):
                return f"{_called(spec)} {_holds('holds', array, wrong, spec.dtype)}"
        return None

    def _blamed(self) -> tuple[TensorSpec, str] | None:
        """The first tensor with elements that were finite before the graph ran and are not now."""
        outputs = self.manifest.signatures[self.name].outputs
        for spec in self._specs(port.tensor for port in outputs if port.tensor is not None):
            new, old = self.state.next(spec.name), self.state.current(spec.name)
            wrong = not_finite(new, spec.dtype) & ~not_finite(old, spec.dtype)
            if wrong.any():
                called = f"the gradient of `{spec.parameter}`" if spec.role == "accumulator" else _called(spec)
                return spec, f"{called} {_holds('', new, wrong, spec.dtype)}".replace("  ", " ")
        return None

    def _specs(self, names: Iterator[str]) -> list[TensorSpec]:
        """The tensors themselves, not what they are joined to, in the order in which they are to be named."""
        joined = {entry.name: entry.members for entry in self.manifest.joined}
        members = (member for name in names for member in joined.get(name, (name,)))
        specs = [self.state.specs[member] for member in members if member in self.state.specs]
        return sorted((spec for spec in specs if spec.role in ORDER), key=lambda spec: ORDER.index(spec.role))


def _has_nan(array: NDArray[Any], dtype: str) -> bool:
    if dtype == "bfloat16":
        return bool(((array & 0x7FFF) > 0x7F80).any())
    return bool(np.isnan(array).any())


def _holds(verb: str, array: NDArray[Any], wrong: NDArray[np.bool_], dtype: str) -> str:
    """``holds NaN (1 of 2 elements)``."""
    what = "NaN" if _has_nan(array[wrong], dtype) else "infinite"
    if verb and what == "infinite":
        what = "infinity"
    size = "" if wrong.size == 1 else f" ({int(wrong.sum())} of {wrong.size} elements)"
    return f"{verb} {what}{size}"


def _called(spec: TensorSpec) -> str:
    if spec.role == "optimizer":
        return f"the optimizer's `{spec.slot}`" + (f" of `{spec.parameter}`" if spec.parameter else "")
    return f"the {spec.role} `{spec.name}`"
