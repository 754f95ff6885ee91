"""A model with adapters, to compare an export with: the model itself, whose weights have the adapters in them.

What the graphs compute beside a weight must be what the module computes with the merged weight; and the gradient of an
adapter what the chain rule makes of that of the merged weight. So the module stays the specification: branches and
merging are two ways to say one thing, of which the module knows neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from edgeopt.autodiff import backward
from edgeopt.canonical.copies import copied
from edgeopt.lowering import lower
from edgeopt.tracing import Tracer
from edgeopt.training.forward import ForwardModel, Merging
from edgeopt_exporters.verification.reference import Arrays, Reference, Trained
from edgeopt_exporters.verification.running import quiet_session

__all__ = ["AdaptedReference", "at_moved", "representable"]

NumpyArray = np.ndarray[Any, Any]


class AdaptedReference:
    """A reference whose weights are merged.

    Args:
        reference: The model without adapters.
        forward: With adapters, at the values that are meant.
    """

    def __init__(self, reference: Reference, forward: ForwardModel, merging: Merging) -> None:
        self._plain, self._forward, self._merging = reference, forward, merging
        self._reference = reference.with_values(self._merged())

    @property
    def sizes(self) -> Mapping[str, int]:
        """Those of the model."""
        return self._plain.sizes

    @property
    def state(self) -> Arrays:
        """That of the model, without adapters, since merging leaves it as it is."""
        return self._plain.state

    @property
    def asked(self) -> Collection[str]:
        """As for the model."""
        return self._plain.asked

    @property
    def epsilon(self) -> float:
        """As for the model."""
        return self._reference.epsilon

    def with_frozen(self, statistics: Collection[str]) -> AdaptedReference:
        """The same with statistics that stay."""
        return AdaptedReference(self._plain.with_frozen(statistics), self._forward, self._merging)

    def with_values(self, values: Arrays) -> AdaptedReference:
        """The same with other weights."""
        forward = replace(self._forward, parameters={**self._forward.parameters, **values})
        return AdaptedReference(self._plain.with_values(values), forward, self._merging)

    def inputs(self, sizes: Mapping[str, int]) -> Arrays:
        """The examples at other sizes."""
        return self._plain.inputs(sizes)

    def predict(self, inputs: Arrays, nudge: float = 0.0) -> Arrays:
        """Outputs in evaluation mode."""
        return self._reference.predict(inputs, nudge)

    def train(
        self,
        inputs: Arrays,
        cotangents: Callable[[Arrays], Arrays],
        wanted: Collection[str],
        nudge: float = 0.0,
        state: Collection[str] | None = None,
    ) -> Trained:
        """Forward and backward in training mode, and the chain rule."""
        own = [name for name in wanted if name not in self._added]
        weights = dict.fromkeys(self._merging.places.values())
        found = self._reference.train(inputs, cotangents, (*own, *(w for w in weights if w not in own)), nudge, state)
        added = self._chained(found.gradients) if len(own) < len(wanted) else {}
        merged = weights.keys()
        return Trained(
            state={name: value for name, value in found.state.items() if name not in merged},
            gradients={name: added[name] if name in added else found.gradients[name] for name in wanted},
        )

    @property
    def _added(self) -> frozenset[str]:
        inputs = (value.name or "" for value in self._merging.merge.model.graph.inputs)
        return frozenset(inputs) - self._plain.state.keys()

    def _merged(self) -> dict[str, NumpyArray]:
        model = copied(self._merging.merge.model)
        lower(model.graph)
        found = quiet_session(_serialized(model)).run(None, self._feeds(model))
        names = self._merging.places.values()
        return {name: np.asarray(array) for name, array in zip(names, found, strict=True)}

    def _feeds(self, model: ir.Model) -> dict[str, NumpyArray]:
        names = [value.name or "" for value in model.graph.inputs]
        return {name: self._forward.parameters[name] for name in names if name in self._forward.parameters}

    @cached_property
    def _rule(self) -> ir.Model:
        """From the gradients of merged weights to those of what they are merged from."""
        model = copied(self._merging.merge.model)
        tracer = Tracer(model.graph)
        results, inputs = list(model.graph.outputs), list(model.graph.inputs)
        model.graph.outputs.clear()
        seeds = {}
        for place, value in zip(self._merging.places, results, strict=True):
            array = tracer.wrap(value)
            seeds[value] = tracer.input(f"gradient.{place}", array.dtype, array.shape)
        wanted = [value for value in inputs if value.name in self._added]
        for value, gradient in zip(wanted, backward(tracer, seeds, wanted), strict=True):
            if gradient is not None:
                tracer.output(gradient, f"of.{value.name}")
        lower(tracer)
        return model

    def _chained(self, gradients: Arrays) -> dict[str, NumpyArray]:
        feeds = self._feeds(self._rule)
        feeds |= {f"gradient.{place}": np.asarray(gradients[name]) for place, name in self._merging.places.items()}
        read = {value.name for value in self._rule.graph.inputs}
        session = quiet_session(_serialized(self._rule))
        found = session.run(None, {name: array for name, array in feeds.items() if name in read})
        names = [(value.name or "").removeprefix("of.") for value in self._rule.graph.outputs]
        return dict(zip(names, found, strict=True))


def representable(merging: Merging, plain: ForwardModel) -> bool:
    """Whether a model has a weight for each merged one.

    One that is read in two ways, and merged in one, is two; and one that is computed is none of the model's.
    """
    names = list(merging.places.values())
    if not plain.parameters.keys() >= set(names):
        return False
    read = {value.name for value in merging.plain.model.graph.inputs if value.uses()}
    return len(set(names)) == len(names) and read.isdisjoint(names)


def at_moved(forward: ForwardModel, plain: ForwardModel) -> ForwardModel:
    """The model with what its adapters added moved away from the beginning."""
    added = forward.parameters.keys() - plain.parameters.keys()
    return replace(forward, parameters=_moved(forward.parameters, added))


def _serialized(model: ir.Model) -> bytes:
    content: bytes = ir.serde.serialize_model(model).SerializeToString()
    return content


def _moved(parameters: Mapping[str, NumpyArray], names: Collection[str]) -> dict[str, NumpyArray]:
    """Parameters of adapters away from where they begin, which is where the model does not see them."""
    random = np.random.default_rng(0)

    def near(array: NumpyArray) -> NumpyArray:
        noise = random.standard_normal(array.shape)
        return np.asarray(array * (1.0 + 0.1 * noise) if array.any() else 0.05 * noise).astype(array.dtype)

    return {name: near(value) if name in names else value for name, value in parameters.items()}
