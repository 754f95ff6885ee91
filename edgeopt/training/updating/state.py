"""The tensors that enter and leave the graphs: their names, roles and first values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from edgeopt.errors import SignatureError
from edgeopt.training.names import (
    DRAWS,
    SCHEDULE_START,
    SEED,
    STEP,
    accumulated_weight,
    accumulator_name,
    share_slot,
    slot_name,
)
from edgeopt.training.updating.groups import Need, UpdateGroup
from edgeopt_runtime.manifest import ENCODED, Encoded, Joined, TensorSpec, flat_spec

__all__ = ["State", "initial_state"]


@dataclass(frozen=True)
class State:
    """Every state tensor's description, and the values of those that a bundle stores.

    Accumulators are described and start at zero, so they have no value here, and neither have parameters that are
    encoded: others stand for them.
    """

    tensors: dict[str, TensorSpec]
    accumulators: dict[str, TensorSpec]
    values: dict[str, np.ndarray[Any, Any]]
    joined: dict[str, Joined]
    encoded: tuple[Encoded, ...] = ()

    @property
    def codes(self) -> frozenset[str]:
        """Constants that weights are decoded from."""
        return frozenset(part for entry in self.encoded for part in entry.parts)

    @property
    def shares(self) -> int:
        """How many weights the losses are divided by."""
        return next(share for share in count() if accumulated_weight(share) not in self.accumulators)

    def shares_of(self, parameter: str) -> list[int]:
        """Those whose losses have a gradient for a parameter; the first is always among them."""
        return [share for share in range(self.shares) if accumulator_name(parameter, share) in self.accumulators]

    def spec(self, name: str) -> TensorSpec:
        """The description of a tensor, a joined one or an accumulator."""
        if name in self.joined:
            return flat_spec(self.joined[name], {**self.tensors, **self.accumulators})
        return self.tensors[name] if name in self.tensors else self.accumulators[name]


def initial_state(
    parameters: Mapping[str, np.ndarray[Any, Any]],
    buffers: Mapping[str, np.ndarray[Any, Any]],
    groups: Sequence[UpdateGroup],
    seed: int,
    shares: Sequence[Collection[str]] = (),
    encoded: Sequence[Encoded] = (),
) -> State:
    """Lay out the state of a training run that has not begun.

    Args:
        parameters: By name.
        buffers: By name.
        groups: The rules and what they update.
        seed: Start of the random numbers.
        shares: Beside the first, for each weight that losses are divided by, the parameters that those reach.

    Raises:
        SignatureError: Two tensors would have the same name.
    """
    tensors: dict[str, TensorSpec] = {}
    accumulators: dict[str, TensorSpec] = {}
    values: dict[str, np.ndarray[Any, Any]] = {}

    def add(name: str, value: np.ndarray[Any, Any], role: str, **extra: Any) -> None:
        if name in tensors:
            raise SignatureError(f"Two state tensors would be called {name!r}; rename that part of the model.")
        tensors[name] = TensorSpec(name, role, value.dtype.name, value.shape, **extra)
        values[name] = value

    trainable = [name for group in groups for name in group.members]
    for name, value in parameters.items():
        add(name, value, "parameter", trainable=name in trainable)
    for name, value in buffers.items():
        add(name, value, "buffer")

    def accumulate(name: str, parameter: str, need: Need | None = None, slot: str | None = None) -> None:
        if name in accumulators:
            raise SignatureError(f"Two accumulators would be called {name!r}; rename that part of the model.")
        value = parameters[parameter]
        shape = value.shape if need is None else need.kind.shape_of_sums(value.shape)
        owner: str | None = parameter
        if need is not None:
            owner, slot = (need.owner if need.owner == parameter else None), need.name
        accumulators[name] = TensorSpec(name, "accumulator", _wide(value.dtype), shape, False, owner, slot)

    for group in groups:
        for parameter, slots in group.slots.items():
            for slot, value in slots.items():
                add(slot_name(slot, parameter), value, "optimizer", parameter=parameter, slot=slot)
            accumulate(accumulator_name(parameter), parameter)
            for share, reached in enumerate(shares, 1):
                if parameter in reached:
                    accumulate(accumulator_name(parameter, share), parameter, slot=share_slot(share))
        for slot, value in group.shared.items():
            add(group.shared_name(slot), value, "optimizer", slot=slot)
        for need in group.measurements():
            accumulate(need.key, need.members[0], need)
    joined = {entry.name: entry for group in groups for entry in _joined(group)}
    add(STEP, np.zeros((), np.int64), "counter")
    add(SCHEDULE_START, np.zeros((), np.int64), "counter")
    add(SEED, np.asarray(seed, np.int64), "seed")
    add(DRAWS, np.zeros((), np.int64), "counter")
    clash = sorted(
        ({*accumulators, *map(accumulated_weight, range(1 + len(shares)))} & {*tensors, *joined})
        | (joined.keys() & tensors.keys())
    )
    if clash:
        raise SignatureError(f"Other tensors would be called {clash}, as parts of the model are; rename those.")
    weight_dtype = _wide(parameters[trainable[0]].dtype)
    for share in range(1 + len(shares)):
        name = accumulated_weight(share)
        further = share_slot(share) if share else None
        accumulators[name] = TensorSpec(name, "accumulator", weight_dtype, (), slot=further)
    for entry in encoded:
        tensors[entry.name] = replace(tensors[entry.name], constant=ENCODED)
        del values[entry.name]
    return State(tensors, accumulators, values, joined, tuple(encoded))


def _joined(group: UpdateGroup) -> Iterator[Joined]:
    for unit in group.units:
        if unit.joined:
            slots = group.slots[next(iter(unit.members))]
            for slot in [slot for slot in slots if slot not in unit.scalars]:
                yield Joined(slot_name(slot, unit.name), tuple(slot_name(slot, name) for name in unit.members))
            yield Joined(accumulator_name(unit.name), tuple(accumulator_name(name) for name in unit.members))


def _wide(dtype: np.dtype[Any]) -> str:
    """Sums of many small gradients need float32 at least."""
    return "float64" if dtype == np.float64 else "float32"
