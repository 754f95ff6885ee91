"""The slots of any optimizer in fewer bits."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import require
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers.base import Arrays, GroupArrays, Optimizer, Updated, UpdatedAll
from edgeopt.optimizers.ingredients import Ingredient, Uniform
from edgeopt.optimizers.kept import OWN, Kept, StateLike, by_slot, format_of, narrowed, part_name, widened
from edgeopt.optimizers.wrappers.wrapper import Wrapper
from edgeopt.quantization import FORMATS, StateFormat, as_state_format, name_of

__all__ = ["QuantizedState"]

NumpyArray = np.ndarray[Any, Any]

# Random numbers for a slot's rounding are ingredients of this name and the slot's.
_ROUNDING = "rounding__"


@dataclass(frozen=True)
class QuantizedState(Wrapper):
    """An optimizer whose slots are kept in a storage format between updates.

    Each update decodes the slots, takes the step of the inner optimizer, and encodes what comes out. Kept so are
    slots in the shape of their parameter that `edgeopt.optimizers.slots` names; a slot `exp_avg` becomes
    `exp_avg__int8__codes`, `exp_avg__int8__absmax` or whatever parts its format has. Numbers, schedule and view are the
    inner optimizer's. Rules make one of themselves: `AdamW(lr=1e-3, state="int8")`.

    Sources: Dettmers et al., ICLR 2022, arXiv:2110.02861 (8 bits); Li, Chen and Zhu, NeurIPS 2023, arXiv:2309.01507
    (4 bits). With `int8_dynamic` and `int4` the codes are those of bitsandbytes' and torchao's optimizers.

    Args:
        inner: The optimizer.
        state: The name of a format, see `edgeopt.quantization.FORMATS`; a `StateFormat`; or, in a bundle, names by
            patterns of parameter names, of which the first that matches counts, and None for slots that stay as they
            are: `{"embedding.*": None, "*": "int8"}`. What no pattern matches stays as it is.

    Raises:
        ConfigurationError: There is no such format, or the inner optimizer's state is kept in one already.
    """

    state: StateLike = "int8"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.state, Mapping):
            as_state_format(self.state)
        for name in self.state.values() if isinstance(self.state, Mapping) else ():
            require(name is None or name in FORMATS, f"formats are {', '.join(FORMATS)} or None, got {name!r}")
        inner: object = self.inner
        while isinstance(inner, Wrapper):
            require(not isinstance(inner, QuantizedState), "the inner optimizer's state has a format already")
            inner = inner.inner

    def for_parameter(self, name: str) -> Optimizer:
        """The same with the format for a parameter of that name, or the inner optimizer where it has none."""
        inner = self.inner.for_parameter(name)
        if not isinstance(self.state, Mapping):
            return self if inner is self.inner else replace(self, inner=inner)
        state = next((state for pattern, state in self.state.items() if fnmatch.fnmatchcase(name, pattern)), None)
        return inner if state is None else replace(self, inner=inner, state=state)

    def joins(self, param: NumpyArray) -> bool:
        """As the inner optimizer, if the slots of the parameter stay as they are."""
        return self.inner.joins(param) and not self.formats(param)

    def formats(self, param: NumpyArray) -> dict[str, Kept]:
        """The format of each slot of a parameter that is kept in one.

        Raises:
            ConfigurationError: Formats go by names of parameters, which only a bundle knows.
        """
        return self._formats(param, self.inner.init(param))

    def _formats(self, param: NumpyArray, slots: Mapping[str, NumpyArray]) -> dict[str, Kept]:
        if isinstance(self.state, Mapping):
            raise ConfigurationError("Formats by names of parameters work in a bundle, which knows the names.")
        state = as_state_format(self.state)
        name = name_of(state) or OWN
        found: dict[str, Kept] = {}
        for slot, value in slots.items() if param.size >= state.smallest else ():
            form = format_of(slot, state)
            exact = slot in self.inner.exact_slots or value.shape != param.shape or value.dtype != param.dtype
            if form is not None and form.fits(param.shape) and not exact:
                found[slot] = Kept(name, form)
        return found

    def init(self, param: NumpyArray) -> dict[str, NumpyArray]:
        """Return the slots of the inner optimizer, encoded."""
        inner = self.inner.init(param)
        return narrowed(inner, self._formats(param, inner))

    def ingredients(self, param: NumpyArray) -> dict[str, Ingredient]:
        """Return what the inner optimizer needs, and random numbers where slots are rounded at random."""
        rounding = {_ROUNDING + slot: Uniform() for slot, kept in self.formats(param).items() if kept.form.draws}
        return {**super().ingredients(param), **rounding}

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

    @property
    def _own(self) -> StateFormat | None:
        return self.state if isinstance(self.state, StateFormat) else None

    def _decoded(self, xp: Namespace, param: Array, state: Arrays) -> dict[str, Array]:
        """The slots as the inner optimizer knows them, and the ingredients."""
        return widened(xp, state, tuple(int(dim) for dim in param.shape), param.dtype, self._own)

    def _encoded(self, xp: Namespace, slots: Arrays, before: Arrays, state: Arrays) -> dict[str, Array]:
        _, parts = by_slot(state, self._own)
        encoded: dict[str, Array] = {}
        for slot, value in slots.items():
            if slot not in parts:
                encoded[slot] = value
                continue
            kept, current = parts[slot]
            # To encode again what the rule left alone would round it again.
            same = value is before[slot]
            made = current if same else kept.form.encode(xp, value, state.get(_ROUNDING + slot))
            encoded |= {part_name(slot, kept.name, part): each for part, each in made.items()}
        return encoded
