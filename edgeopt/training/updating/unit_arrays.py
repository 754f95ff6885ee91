"""Parameters and slots on their way into a function that works on units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgeopt.tracing import Array
from edgeopt.training.graphs.builder import GraphBuilder
from edgeopt.training.updating.groups import UpdateGroup
from edgeopt.training.updating.units import Unit

__all__ = ["state_inputs", "unit_states"]


def state_inputs(builder: GraphBuilder, group: UpdateGroup, units: Sequence[Unit]) -> dict[str, Array]:
    """The operands `param.NAME` of each parameter, and `SLOT.NAME` of each unit."""
    inputs = {f"param.{name}": builder.parameter(name) for unit in units for name in unit.members}
    for unit in units:
        for slot in group.slots[next(iter(unit.members))]:
            inputs[f"{slot}.{unit.name}"] = builder.state(group.slot_name(slot, unit))
    return inputs


def unit_states(
    group: UpdateGroup, units: Sequence[Unit], x: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, dict[str, Array]]]:
    """Parameters and slots by unit, inside the function."""
    params = {unit.name: unit.gather(x, "param.") for unit in units}
    slots = {unit.name: list(group.slots[next(iter(unit.members))]) for unit in units}
    return params, {unit.name: {slot: x[f"{slot}.{unit.name}"] for slot in slots[unit.name]} for unit in units}
