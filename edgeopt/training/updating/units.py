"""Small parameters joined, so that a rule updates many of them with as few nodes as one.

A node of an update costs more to launch than to run where a tensor is small. Parameters of an elementwise rule that are
small are therefore concatenated in the graph, updated as one vector and split again, and their slots are kept as one
flat tensor in memory; many of them make several such vectors. Large parameters are updated alone: to copy them together
would cost more than it saves. Neither the rule nor the bundle's state knows: the manifest says where in the flat tensor
each parameter's slot lies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from edgeopt import tracing as xp
from edgeopt.optimizers import Ingredient, Noise, Optimizer
from edgeopt.tracing import Array

__all__ = ["JOINED_SIZE", "Unit", "make_units"]

NumpyArray = np.ndarray[Any, Any]

#: Parameters of at most so many elements are joined.
JOINED_SIZE = 1 << 14

#: A joined vector and what is computed from it should stay in a processor's cache, so it gets no longer than this.
_JOINED_TOTAL = 1 << 15


class Unit(NamedTuple):
    """What is updated at a time: a parameter, or several small ones.

    Attributes:
        name: That of the parameter, or one for all of them.
        members: Names and shapes of the parameters.
        scalars: Slots that are one number however many elements there are; all members have the same value.
        joined: Whether there are several.
    """

    name: str
    members: Mapping[str, tuple[int, ...]]
    scalars: frozenset[str] = frozenset()
    joined: bool = False

    def gather(self, arrays: Mapping[str, Array], prefix: str = "") -> Array:
        """Those of the members as one vector, by name, or the one of the unit if that is there or it stands alone."""
        if not self.joined or prefix + self.name in arrays:
            return arrays[prefix + self.name]
        parts = [arrays[prefix + name] for name in self.members]
        flat: Array = xp.concat([part if part.ndim == 1 else xp.reshape(part, [-1]) for part in parts])
        return flat

    def split(self, flat: Array) -> dict[str, Array]:
        """The vector as one array for each member, by name."""
        sizes = np.asarray([math.prod(shape) for shape in self.members.values()], np.int64)
        parts = flat.tracer.emit("Split", flat, sizes, outputs=len(sizes), axis=0)
        return {
            name: part if len(shape) == 1 else xp.reshape(part, shape)
            for (name, shape), part in zip(self.members.items(), parts, strict=True)
        }


def make_units(
    rule: Optimizer,
    parameters: Mapping[str, NumpyArray],
    ingredients: Mapping[str, Mapping[str, Ingredient]],
    largest: int,
    stem: str = "joined",
) -> tuple[Unit, ...]:
    """Divide the parameters of a rule into units.

    Args:
        rule: The update rule.
        parameters: The parameters by name.
        ingredients: What the rule needs for each.
        largest: The number of elements up to which parameters are joined.
        stem: The name of a joined unit, or its beginning where there are several.
    """
    small: dict[np.dtype[Any], list[str]] = {}
    for name, parameter in parameters.items():
        fixed = any(isinstance(need, Noise) and need.shape is not None for need in ingredients[name].values())
        if parameter.size <= largest and rule.for_parameter(name).joins(parameter) and not fixed:
            small.setdefault(parameter.dtype, []).append(name)
    units = []
    for dtype, names in small.items():
        # How the rule sees a vector tells slots of its shape from scalars.
        slots = rule.for_parameter(names[0]).init(np.zeros(2, dtype))
        if not all(value.shape in ((2,), ()) for value in slots.values()):
            continue
        scalars = frozenset(slot for slot, value in slots.items() if value.shape == ())
        runs = _runs({name: parameters[name].size for name in names}, max(largest, _JOINED_TOTAL))
        for place, run in enumerate(runs):
            name = stem if len(small) == 1 else f"{stem}.{dtype.name}"
            name = name if len(runs) == 1 else f"{name}.{place}"
            if len(run) > 1:
                units.append(Unit(name, {key: parameters[key].shape for key in run}, scalars, joined=True))
    together = {name for unit in units for name in unit.members}
    alone = [Unit(name, {name: value.shape}) for name, value in parameters.items() if name not in together]
    return (*units, *alone)


def _runs(sizes: Mapping[str, int], total: int) -> list[list[str]]:
    """The names in their order, cut where the sizes would sum to more than the total."""
    runs: list[list[str]] = []
    room = 0
    for name, size in sizes.items():
        if size > room or not runs:
            runs.append([])
            room = total
        runs[-1].append(name)
        room -= size
    return runs
