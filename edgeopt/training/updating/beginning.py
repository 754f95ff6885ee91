"""The state of optimizers before the first update, as a graph of the parameters.

Most slots begin as a number everywhere, and some as copies of their parameter (averages, the point where a step starts
from). Which it is shows when a rule makes its slots for other parameters. What depends on a parameter in another way
begins as it did at the export.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from edgeopt import tracing as xp
from edgeopt.tracing import Array, op
from edgeopt.training.graphs.builder import GraphBuilder
from edgeopt.training.names import STEP, slot_name
from edgeopt.training.updating.groups import UpdateGroup

__all__ = ["begin"]

NumpyArray = np.ndarray[Any, Any]


def begin(builder: GraphBuilder, groups: Sequence[UpdateGroup], parameters: Mapping[str, NumpyArray]) -> None:
    """Set every slot of every group, and the count of updates, to what they are before the first one.

    Args:
        builder: The graph.
        groups: The rules and their parameters.
        parameters: Their values at the export, from which the groups' first slots were made.
    """
    for group in groups:
        _begin_group(builder, group, parameters)
    builder.set_state(STEP, builder.tracer.constant(np.zeros((), np.int64)))


def _begin_group(builder: GraphBuilder, group: UpdateGroup, parameters: Mapping[str, NumpyArray]) -> None:
    for unit in group.units:
        first = {name: _first_slots(builder, group, name, parameters[name]) for name in unit.members}
        for slot in next(iter(first.values())):
            if unit.joined and slot in unit.scalars:
                for name in unit.members:
                    builder.set_state(slot_name(slot, name), first[name][slot])
            else:
                whole = unit.gather({name: slots[slot] for name, slots in first.items()})
                builder.set_state(group.slot_name(slot, unit), whole)
    for slot, value in group.shared.items():
        builder.set_state(group.shared_name(slot), _constant(builder, value))


def _first_slots(builder: GraphBuilder, group: UpdateGroup, name: str, parameter: NumpyArray) -> dict[str, Array]:
    """The slots of one parameter."""
    elsewhere = np.asarray(parameter + 1, parameter.dtype)
    others = group.rule.for_parameter(name).init(elsewhere)
    return {
        slot: xp.astype(builder.state(name), value.dtype)
        if np.array_equal(value, parameter) and np.array_equal(others[slot], elsewhere)
        else _constant(builder, value)
        for slot, value in group.slots[name].items()
    }


def _constant(builder: GraphBuilder, value: NumpyArray) -> Array:
    """A tensor that is made when the graph runs, if it holds one number only, so that graphs stay small."""
    if value.size > 1 and value.tobytes() == np.full_like(value, value.flat[0]).tobytes():
        shape = builder.tracer.constant(np.asarray(value.shape, np.int64))
        return op.ConstantOfShape(shape, value=ir.tensor(value.reshape(-1)[:1]))
    if value.ndim == 2 and value.size > 1 and np.array_equal(value, np.eye(*value.shape) * value[0, 0]):
        zeros = _constant(builder, np.zeros_like(value))
        diagonal: Array = op.EyeLike(zeros) * builder.tracer.constant(value[0, 0])
        return diagonal
    return builder.tracer.constant(value)
