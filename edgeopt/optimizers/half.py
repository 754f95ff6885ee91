"""float16 parameters: rules compute with them in float32.

float16 begins at 6e-8, so that an epsilon of 1e-8 is 0 in it, and 0/0 the step of a gradient of 0; squares of gradients
below 2e-4 vanish, and those above 256 are infinite. Only what is kept between updates has the parameter's dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from edgeopt.array_types import Array, Namespace, is_half

__all__ = ["in_float32"]

Method = Callable[..., Any]


def in_float32(name: str, method: Method) -> Method:
    """One of the methods of an update rule that get arrays, called with float32 in the place of float16."""
    return {"update": _update, "update_all": _update_all, "view": _view}[name](method)


def _wide(xp: Namespace, array: Array) -> Array:
    return xp.astype(array, xp.float32) if is_half(array) else array


def _wide_all(xp: Namespace, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: _wide(xp, array) for name, array in arrays.items()}


def _as_before(xp: Namespace, new: Array, wide: Array | None, before: Array | None) -> Array:
    """A result in the dtype of what it replaces, and that itself where it is the same."""
    if before is None or not is_half(before):
        return new
    return before if new is wide else xp.astype(new, before.dtype)


def _all_as_before(
    xp: Namespace, new: Mapping[str, Array], wide: Mapping[str, Array], before: Mapping[str, Array]
) -> dict[str, Array]:
    return {name: _as_before(xp, array, wide.get(name), before.get(name)) for name, array in new.items()}


def _update(method: Method) -> Method:
    @functools.wraps(method)
    def update(self: Any, xp: Namespace, param: Array, grad: Array, state: Any, hyper: Any, step: Array) -> Any:
        if not is_half(param):
            return method(self, xp, param, grad, state, hyper, step)
        own, slots = _wide(xp, param), _wide_all(xp, state)
        moved, kept = method(self, xp, own, _wide(xp, grad), slots, hyper, step)
        return _as_before(xp, moved, own, param), _all_as_before(xp, kept, slots, state)

    return update


def _update_all(method: Method) -> Method:
    @functools.wraps(method)
    def update_all(self: Any, xp: Namespace, group: Any, hyper: Any, step: Array) -> Any:
        if not any(is_half(param) for param in group.params.values()):
            return method(self, xp, group, hyper, step)
        states = {name: _wide_all(xp, state) for name, state in group.states.items()}
        params, grads, shared = (_wide_all(xp, each) for each in (group.params, group.grads, group.shared))
        wide = type(group)(params, grads, states, shared)
        moved, slots, common = method(self, xp, wide, hyper, step)
        kept = {name: _all_as_before(xp, own, states[name], group.states[name]) for name, own in slots.items()}
        back = _all_as_before(xp, moved, params, group.params)
        return back, kept, _all_as_before(xp, common, shared, group.shared)

    return update_all


def _view(method: Method) -> Method:
    @functools.wraps(method)
    def view(self: Any, xp: Namespace, param: Array, state: Any, hyper: Any, step: Array) -> Any:
        if not is_half(param):
            return method(self, xp, param, state, hyper, step)
        own, slots = _wide(xp, param), _wide_all(xp, state)
        seen = method(self, xp, own, slots, hyper, step)
        for name, slot in slots.items():
            if seen is slot:
                return state[name]
        return _as_before(xp, seen, own, param)

    return view
