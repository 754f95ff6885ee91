"""Slots as rules know them, of state that may be kept in storage formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgeopt.optimizers.kept import Kept, by_slot, decoded, narrowed, part_name
from edgeopt.training.names import slot_name
from edgeopt.training.updating.groups import UpdateGroup
from edgeopt_runtime.manifest import TensorSpec

__all__ = ["Slots"]

NumpyArray = np.ndarray[Any, Any]


class Slots:
    """A state, with what is kept in parts as one tensor.

    Attributes:
        values: The state by tensor name; of a slot in a format what it decodes to, under the name of the slot.

    Args:
        specs: What the tensors are.
        state: Their values.
    """

    def __init__(self, specs: Iterable[TensorSpec], state: Mapping[str, NumpyArray]) -> None:
        self.values = dict(state)
        self._state = state
        self._parts: dict[str, tuple[str, str, Kept, dict[str, NumpyArray]]] = {}
        slots: dict[str, dict[str, NumpyArray]] = {}
        for spec in specs:
            if spec.role == "optimizer" and spec.parameter is not None and spec.slot is not None:
                slots.setdefault(spec.parameter, {})[spec.slot] = state[spec.name]
        for parameter, own in slots.items():
            for slot, (kept, parts) in by_slot(own)[1].items():
                name, like = slot_name(slot, parameter), state[parameter]
                self.values[name] = decoded(kept, parts, like)
                self._parts[name] = (slot, parameter, kept, parts)

    def of(self, groups: Sequence[UpdateGroup]) -> list[UpdateGroup]:
        """The groups with these values as the first ones of their slots."""

        def whole(parameter: str, slots: Mapping[str, NumpyArray]) -> dict[str, NumpyArray]:
            plain, parts = by_slot(slots)
            return {slot: self.values[slot_name(slot, parameter)] for slot in (*plain, *parts)}

        return [
            replace(group, slots={parameter: whole(parameter, slots) for parameter, slots in group.slots.items()})
            for group in groups
        ]

    def tensors(self, name: str) -> list[str]:
        """The tensors that a slot is kept in."""
        if name not in self._parts:
            return [name]
        slot, parameter, kept, parts = self._parts[name]
        return [slot_name(part_name(slot, kept.name, part), parameter) for part in parts]

    def taken(self, name: str, other: Slots, source: str, factor: float) -> dict[str, tuple[NumpyArray, str]]:
        """The tensors of a slot that goes on from one of another state, times a factor, and where each comes from.

        In one format, and without a factor, its parts go on bit for bit.
        """
        if name in self._parts and source in other._parts and factor == 1.0:
            mine, theirs = self.tensors(name), other.tensors(source)
            if self._parts[name][2] == other._parts[source][2]:
                return {one: (other._state[two], two) for one, two in zip(mine, theirs, strict=True)}
        value = other.values[source]
        value = value if factor == 1.0 else (value * factor).astype(value.dtype)
        origin = other.tensors(source)[0]
        if name not in self._parts:
            return {name: (value, origin)}
        slot, parameter, kept, _ = self._parts[name]
        made = narrowed({slot: value}, {slot: kept})
        return {slot_name(part, parameter): (each, origin) for part, each in made.items()}
