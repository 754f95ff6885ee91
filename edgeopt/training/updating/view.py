"""Evaluation and prediction with what the optimizer says stands for a parameter: an average, for instance."""

from __future__ import annotations

from collections.abc import Sequence

from edgeopt import tracing as xp
from edgeopt.tracing import Array
from edgeopt.training.graphs.builder import GraphBuilder
from edgeopt.training.names import STEP
from edgeopt.training.updating.fused import static_flags
from edgeopt.training.updating.groups import UpdateGroup
from edgeopt.training.updating.unit_arrays import state_inputs, unit_states
from edgeopt.training.updating.units import Unit
from edgeopt.training.updating.update import hyper_inputs

__all__ = ["look_through", "write_views"]


def look_through(builder: GraphBuilder, groups: Sequence[UpdateGroup]) -> bool:
    """Put the rules' views of the parameters in the parameters' place, in a forward graph that is not built upon yet.

    A rule without a view of its own leaves the graph as it is. Returns whether there was any.
    """
    changed = False
    for group in groups:
        units = [unit for unit in group.units if any(builder.reads(name) for name in unit.members)]
        for name, view in _views(builder, group, units).items():
            builder.substitute(builder.state(name), view)
            changed = True
    return changed


def write_views(builder: GraphBuilder, groups: Sequence[UpdateGroup]) -> None:
    """Write the rules' views in the parameters' place, where there are any."""
    for group in groups:
        for name, view in _views(builder, group, group.units).items():
            builder.set_state(name, view)


def _views(builder: GraphBuilder, group: UpdateGroup, units: Sequence[Unit]) -> dict[str, Array]:
    """One function for some units of a group; only the parameters that have a view of their own."""
    rule = group.rule
    completed = builder.state(STEP)
    hyper = hyper_inputs(builder, group, completed)
    inputs = {"step": completed, **hyper, **state_inputs(builder, group, units)}

    def body(x: dict[str, Array]) -> dict[str, Array]:
        params, states = unit_states(group, units, x)
        own = {key: x[key] for key in hyper}
        results: dict[str, Array] = {}
        for unit in units:
            param = params[unit.name]
            view = rule.view(xp, param, states[unit.name], own, x["step"])
            if view is not param:
                results |= unit.split(view) if unit.joined else {unit.name: view}
        return {f"view.{name}": view for name, view in results.items()}

    name = f"{type(rule).__name__}View"
    results = builder.functions.call(builder.tracer, name, inputs, body, static_flags(rule))
    return {key.removeprefix("view."): value for key, value in results.items()}
