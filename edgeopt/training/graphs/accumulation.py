"""Gradients summed over microbatches, and their mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgeopt import tracing as xp
from edgeopt.tracing import Array
from edgeopt.training.graphs.builder import GraphBuilder
from edgeopt.training.names import accumulated_weight, accumulator_name
from edgeopt.training.updating.units import Unit

__all__ = ["add_gradients", "add_weight", "inverse_weight", "mean_gradients"]


def add_gradients(builder: GraphBuilder, units: Iterable[Unit], sums: Mapping[str, Array], share: int = 0) -> None:
    """Add what a microbatch gives for each parameter to the accumulators.

    Those of the first share lie as the updates want them, joined. The others, which few bundles have, lie by parameter.
    """
    for unit in units:
        if not share:
            _add(builder, accumulator_name(unit.name), unit.gather(sums))
            continue
        for member in unit.members:
            if share in builder.shares_of(member):
                _add(builder, accumulator_name(member, share), sums[member])


def add_weight(builder: GraphBuilder, weight: Array, share: int = 0) -> None:
    """Add what a microbatch weighs."""
    _add(builder, accumulated_weight(share), weight)


def _add(builder: GraphBuilder, name: str, value: Array) -> None:
    accumulator = builder.state(name)
    builder.set_state(name, accumulator + xp.astype(value, accumulator.dtype))


def mean_gradients(builder: GraphBuilder, units: Iterable[Unit]) -> dict[str, Array]:
    """The gradient of the mean loss over all that was accumulated, by unit, in the dtype of the parameters."""
    factors = [
        inverse_weight(builder.state(accumulated_weight(share)), alone=builder.shares == 1)
        for share in range(builder.shares)
    ]
    gradients = {}
    for unit in units:
        parameter = builder.state(next(iter(unit.members)))
        total = _scaled(builder.state(accumulator_name(unit.name)), factors[0])
        if builder.shares > 1:
            total = total + unit.gather(_further(builder, unit, factors, total))
        gradients[unit.name] = xp.astype(total, parameter.dtype)
    return gradients


def inverse_weight(weight: Array, *, alone: bool) -> Array:
    """What sums of gradients are multiplied by. Beside others, losses that count nothing add nothing."""
    if alone:
        return 1.0 / weight
    nothing = xp.equal(weight, 0.0)
    return xp.where(nothing, xp.zeros_like(weight), 1.0 / xp.where(nothing, xp.ones_like(weight), weight))


def _further(builder: GraphBuilder, unit: Unit, factors: list[Array], total: Array) -> dict[str, Array]:
    """The means of all shares but the first, by parameter."""
    means = {}
    for member in unit.members:
        shares = [share for share in builder.shares_of(member) if share]
        parts = [_scaled(builder.state(accumulator_name(member, share)), factors[share]) for share in shares]
        zeros = xp.astype(xp.zeros_like(builder.state(member)), total.dtype)
        means[member] = sum(parts[1:], start=parts[0]) if parts else zeros
    return means


def _scaled(accumulator: Array, factor: Array) -> Array:
    return accumulator * xp.astype(factor, accumulator.dtype)
