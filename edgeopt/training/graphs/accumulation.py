"""Gradients summed over microbatches, and their mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgeopt import tracing as xp
from edgeopt.tracing import Array
from edgeopt.training.graphs.builder import GraphBuilder
from edgeopt.training.names import ACCUMULATED_WEIGHT, accumulator_name
from edgeopt.training.updating.units import Unit

__all__ = ["add_gradients", "mean_gradients"]


def add_gradients(builder: GraphBuilder, units: Iterable[Unit], sums: Mapping[str, Array]) -> None:
    """Add what a microbatch gives for each parameter to the accumulators."""
    for unit in units:
        name = accumulator_name(unit.name)
        accumulator, value = builder.state(name), unit.gather(sums)
        builder.set_state(name, accumulator + xp.astype(value, accumulator.dtype))


def mean_gradients(builder: GraphBuilder, units: Iterable[Unit]) -> dict[str, Array]:
    """The gradient of the mean loss over all that was accumulated, by unit, in the dtype of the parameters."""
    share = 1.0 / builder.state(ACCUMULATED_WEIGHT)
    gradients = {}
    for unit in units:
        accumulator, parameter = builder.state(accumulator_name(unit.name)), builder.state(next(iter(unit.members)))
        gradients[unit.name] = xp.astype(accumulator * xp.astype(share, accumulator.dtype), parameter.dtype)
    return gradients
