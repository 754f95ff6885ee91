"""The slots of any optimizer in fewer bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.optimizers.base import Arrays, GroupArrays, Updated, UpdatedAll
from edgeopt.optimizers.ingredients import Ingredient, Uniform
from edgeopt.optimizers.slots import SIGNED, UNSIGNED
from edgeopt.optimizers.wrappers.wrapper import Wrapper
from edgeopt.quantization import Format, StateFormat, as_state_format

__all__ = ["QuantizedState"]

NumpyArray = np.ndarray[Any, Any]

# Between the name of a slot and that of a part: `exp_avg__codes`.
_JOINT = "__"


@dataclass(frozen=True)
class QuantizedState(Wrapper):
    """An optimizer whose slots are kept in a storage format between updates.

    Each update decodes the slots, takes the step of the inner optimizer, and encodes what comes out. Kept so are
    slots in the shape of their parameter that `edgeopt.optimizers.slots` names; a slot `exp_avg` becomes
    `exp_avg__codes`, `exp_avg__absmax` or whatever parts its format has. Numbers, schedule and view are the inner
    optimizer's.

    Sources: Dettmers et al., ICLR 2022, arXiv:2110.02861 (8 bits); Li, Chen and Zhu, NeurIPS 2023, arXiv:2309.01507
    (4 bits). With `int8_dynamic` and `int4` the codes are those of bitsandbytes' and torchao's optimizers.

    Args:
        inner: The optimizer.
        state: The name of a format, see `edgeopt.quantization.FORMATS`, or a `StateFormat`.

    Raises:
        ConfigurationError: There is no such format, or the inner optimizer's state is kept in one already.
    """

    state: str | StateFormat = "int8"

    def __post_init__(self) -> None:
        super().__post_init__()
        as_state_format(self.state)
        require(not isinstance(self.inner, QuantizedState), "the inner optimizer's state has a format already")

    def joins(self, param: NumpyArray) -> bool:
        """As the inner optimizer, if the slots of the parameter stay as they are."""
        return self.inner.joins(param) and not self.formats(param)

    def formats(self, param: NumpyArray) -> dict[str, Format]:
        """The format of each slot of a parameter that is kept in one."""
        return self._formats(param, self.inner.init(param))

    def _formats(self, param: NumpyArray, slots: Mapping[str, NumpyArray]) -> dict[str, Format]:
        state = as_state_format(self.state)
        found: dict[str, Format] = {}
        for slot, value in slots.items() if param.size >= state.smallest else ():
            form = state.signed if slot in SIGNED else state.unsigned if slot in UNSIGNED else None
            exact = slot in self.inner.exact_slots or value.shape != param.shape or value.dtype != param.dtype
            if form is not None and form.fits(param.shape) and not exact:
                found[slot] = form
        return found

    def init(self, param: NumpyArray) -> dict[str, NumpyArray]:
        """Return the slots of the inner optimizer, encoded."""
        inner = self.inner.init(param)
        formats = self._formats(param, inner)
        slots: dict[str, NumpyArray] = {}
        for slot, value in inner.items():
            slots |= _named(slot, formats[slot].first(value)) if slot in formats else {slot: value}
        return slots

    def ingredients(self, param: NumpyArray) -> dict[str, Ingredient]:
        """Return what the inner optimizer needs, and random numbers where slots are rounded at random."""
        rounding = {slot: Uniform() for slot, form in self.formats(param).items() if form.draws}
        return {**super().ingredients(param), **_named("rounding", rounding)}

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take a step of the inner optimizer with decoded slots."""
        before = self._decoded(xp, param, state)
        moved, slots = self.inner.update(xp, param, grad, before, hyper, step)
        return moved, self._encoded(xp, slots, before, state)

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take a step of the inner optimizer with decoded slots."""
        states = {name: self._decoded(xp, param, group.states[name]) for name, param in group.params.items()}
        moved, slots, shared = self.inner.update_all(xp, group._replace(states=states), hyper, step)
        encoded = {name: self._encoded(xp, slots[name], states[name], group.states[name]) for name in slots}
        return moved, encoded, shared

    def view(self, xp: Namespace, param: Array, state: Arrays, hyper: Arrays, step: Array) -> Array:
        """Return the view of the inner optimizer."""
        return self.inner.view(xp, param, self._decoded(xp, param, state), hyper, step)

    def _decoded(self, xp: Namespace, param: Array, state: Arrays) -> dict[str, Array]:
        """The slots as the inner optimizer knows them, and the ingredients."""
        parts = _by_slot(state)
        found = {name: value for name, value in state.items() if _JOINT not in name}
        for slot, own in parts.items():
            if slot != "rounding":
                shape = tuple(int(dim) for dim in param.shape)
                found[slot] = self._format(slot).decode(xp, own, shape, param.dtype)
        return found

    def _encoded(self, xp: Namespace, slots: Arrays, before: Arrays, state: Arrays) -> dict[str, Array]:
        parts = _by_slot(state)
        noise = parts.pop("rounding", {})
        encoded: dict[str, Array] = {}
        for slot, value in slots.items():
            if slot not in parts:
                encoded[slot] = value
            elif value is before[slot]:
                # To encode again what the rule left alone would round it again.
                encoded |= _named(slot, parts[slot])
            else:
                encoded |= _named(slot, self._format(slot).encode(xp, value, noise.get(slot)))
        return encoded

    def _format(self, slot: str) -> Format:
        state = as_state_format(self.state)
        form = state.signed if slot in SIGNED else state.unsigned
        require(form is not None, f"the format has nothing for the slot {slot}")
        return cast("Format", form)


def _named(slot: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{slot}{_JOINT}{part}": value for part, value in parts.items()}


def _by_slot(names: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    found: dict[str, dict[str, Array]] = {}
    for name, value in names.items():
        slot, joint, part = name.partition(_JOINT)
        if joint:
            found.setdefault(slot, {})[part] = value
    return found
