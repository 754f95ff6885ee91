"""A loss that is an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import onnx_ir as ir

from edgeopt.array_types import Array, Namespace
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses.base import ArraySpec, Each, Loss
from edgeopt.tracing import shapes
from edgeopt.tracing.array import to_numpy_dtype
from edgeopt.tracing.inlining import inline

__all__ = ["FromONNX", "from_onnx"]


@dataclass(frozen=True)
class FromONNX(Loss):
    """A loss that `from_onnx` makes.

    Attributes:
        model: The loss model, in canonical form once an export has read it.
        said: Inputs of the loss model, each with the output of the trained model that it is, as they were given.
        reads: The same, once the trained model is known.
    """

    model: Any
    said: tuple[tuple[str, str], ...] = ()
    reads: tuple[tuple[str, str], ...] = field(default=(), kw_only=True, repr=False)

    @property
    def graph(self) -> ir.Graph:
        """The canonical graph, which an export makes of whatever was given."""
        if not isinstance(self.model, ir.Model):
            raise ConfigurationError("A loss from an ONNX model is for edgeopt.export, which reads the model.")
        return self.model.graph

    def settled(self, default: str, outputs: Mapping[str, ArraySpec], inputs: Mapping[str, ArraySpec]) -> Loss:
        """Return the loss that knows which of its inputs are outputs of the model.

        Raises:
            SignatureError: `outputs` names an input that there is not, or the loss model has none.
        """
        names, said = [value.name or "" for value in self.graph.inputs], dict(self.said)
        if unknown := [name for name in said if name not in names]:
            raise SignatureError(f"The loss model has no input {unknown[0]!r}; its inputs are {names}.")
        if not names or not self.graph.outputs:
            raise SignatureError("The loss model needs an input, which is an output of the model, and an output.")
        reads = {name: said.get(name, name) for name in names if name in said or name in outputs}
        return replace(self, reads=tuple((reads or {names[0]: default}).items()))

    def assumptions(self) -> tuple[str, ...]:
        """Return that a single number is taken for a mean over samples."""
        first, *more = self.graph.outputs
        if more or first.shape is None or first.shape.rank() or self.reduction == "sum":
            return ()
        return (
            f"The loss model's {first.name!r} is a single number, and is taken for the mean over the samples. Let the "
            "loss model return one number for each, or what it divides by as a second output, if it is another mean.",
        )

    def outputs(self) -> tuple[str | None, ...]:
        """Return the outputs that the loss model reads."""
        return tuple(output for _, output in self.reads)

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return the other inputs of the loss model; dimensions that it shares with an output have the name there.

        Raises:
            SignatureError: An output has another type or shape than the loss model takes.
        """
        found = dict(zip((name for name, _ in self.reads), (prediction, *others), strict=True))
        values = {value.name or "": value for value in self.graph.inputs}
        sizes: dict[str, int | str] = {}
        for name, spec in found.items():
            _match(spec, _spec(values[name]), sizes)
        return tuple(
            spec._replace(shape=tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape))
            for spec in (_spec(value) for name, value in values.items() if name not in found)
        )

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return what the loss model computes.

        Raises:
            SignatureError: It is a single number.
        """
        values, weights = self._results(prediction, *targets)
        if not values.ndim:
            raise SignatureError("The loss model returns a single number: sample_weight cannot weigh samples.")
        return Each(values, weights)

    def sum_and_weight(self, xp: Namespace, prediction: Array, *targets: Array) -> tuple[Array, Array]:
        """Return the sum, of a mean times what it was divided by."""
        values, weights = self._results(prediction, *targets)
        if values.ndim:
            return super().sum_and_weight(xp, prediction, *targets)
        if self.reduction == "sum":
            return values, xp.ones_like(values)
        rows = prediction.tracer.emit("Shape", prediction, start=0, end=1)
        weight = xp.astype(xp.sum(rows if weights is None else weights), values.dtype)
        return values * weight, weight

    def _results(self, prediction: Array, *others: Array) -> tuple[Array, Array | None]:
        arrays = (prediction, *others)
        names = [value.name or "" for value in self.graph.inputs]
        read = [name for name, _ in self.reads]
        order = [*read, *(name for name in names if name not in read)]
        by_name = dict(zip(order, arrays, strict=True))
        values, *weights = inline(prediction.tracer, self.graph, [by_name[name] for name in names])
        return values, weights[0] if weights else None


def from_onnx(model: Any, *, outputs: Mapping[str, str] | None = None, **settings: Any) -> FromONNX:
    """Make a loss of an ONNX model whose inputs are outputs of the model that is trained, and labels.

    An input that has the name of an output is that output; `outputs` says others. Where there is none, the first input
    is the default output. The remaining inputs are inputs of a batch.

    The loss model's first output is the loss: one number for each sample or position, of which the mean is taken; or a
    single number, which is taken for the mean over the samples, as the export says. A second output, if there is one,
    says what each of the losses weighs in the mean, or what the single number is the mean of. Weights of the loss model
    are constants.

    Args:
        model: A path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`.
        outputs: Inputs of the loss model, each with the output that it is: `{"scores": "logits"}`.
        settings: `reduction` and `sample_weight`, see `Loss`.
    """
    return FromONNX(model, tuple((outputs or {}).items()), **settings)


def _spec(value: ir.Value) -> ArraySpec:
    if value.dtype is None or value.shape is None:
        raise SignatureError(f"The loss model does not say the type and rank of its input {value.name!r}.")
    dims = shapes.from_ir(value.shape)
    shape = tuple(f"{value.name}_dim_{axis}" if dim is None else dim for axis, dim in enumerate(dims))
    return ArraySpec(value.name or "", to_numpy_dtype(value.dtype).name, shape)


def _match(output: ArraySpec, taken: ArraySpec, sizes: dict[str, int | str]) -> None:
    """Learn the loss model's dimensions from an output; refuse one that does not fit."""
    fits = output.dtype == taken.dtype and len(output.shape) == len(taken.shape)
    for own, dim in zip(output.shape, taken.shape, strict=False):
        if isinstance(dim, str):
            fits = fits and sizes.setdefault(dim, own) == own
        else:
            fits = fits and (isinstance(own, str) or own == dim)
    if not fits:
        raise SignatureError(
            f"The loss model takes {taken.name!r} as {taken.dtype} of shape {list(taken.shape)}, but the output "
            f"{output.name!r} is {output.dtype} of shape {list(output.shape)}."
        )
