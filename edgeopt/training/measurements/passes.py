"""What measurements start from, and what each kind of them has to say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.autodiff import backward
from edgeopt.optimizers import Measurement
from edgeopt.tracing import Array
from edgeopt.training.graphs.builder import GraphBuilder
from edgeopt.training.measurements.finding import Layers
from edgeopt.training.plan import Plan
from edgeopt.training.updating.groups import Need

__all__ = ["Estimator", "Passes"]


@dataclass(frozen=True)
class Passes:
    """What measurements, and the passes through the model that they take, start from.

    Attributes:
        builder: The graph that holds forward and backward.
        plan: The settings.
        total: The loss sum.
        weight: What it is divided by.
        gradients: The gradient of each trainable parameter.
        further: Of losses that are divided by other weights: their gradients, and the weight.
        layers: The layers whose inputs and outputs rules ask about.
        cotangents: The gradients of what leaves those layers.
        scale: What gradients and cotangents have to be multiplied by to be those of the loss sum.
        tangents: The directions that rules look along, by the keys of their ingredients.
    """

    builder: GraphBuilder
    plan: Plan
    total: Array
    weight: Array
    gradients: Mapping[str, Array]
    further: Sequence[tuple[Mapping[str, Array], Array]]
    layers: Layers
    cotangents: Mapping[ir.Value, Array]
    scale: Array
    tangents: Mapping[str, Array]

    def backward(self, seeds: Mapping[ir.Value, Array], names: Sequence[str]) -> dict[str, Array]:
        """Cotangents of the parameters, zero where nothing depends on one."""
        parameters = [self.builder.state(name) for name in names]
        found = backward(self.builder.tracer, seeds, [array.value for array in parameters])
        return {
            name: xp.zeros_like(parameter) if cotangent is None else cotangent
            for name, parameter, cotangent in zip(names, parameters, found, strict=True)
        }


class Estimator(ABC):
    """Sums over microbatches, and the measurement that they give: an estimate of what holds for all data."""

    @abstractmethod
    def sums(self, passes: Passes, needs: Sequence[Need]) -> list[Array]:
        """One additive array for each of the needs, of the shape that its kind says."""

    @abstractmethod
    def estimate(self, kind: Measurement, total: Array, weight: Array) -> Array:
        """The estimate from the sum over all microbatches and the weight of the loss."""
