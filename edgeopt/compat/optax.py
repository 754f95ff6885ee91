"""Update rules as gradient transformations of optax, on trees of arrays of any kind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import array_api_compat
import numpy as np

from edgeopt.array_types import Array, Namespace
from edgeopt.compat.settings import check_real, rate
from edgeopt.compat.trees import flatten, unflatten
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import GroupArrays, Optimizer

__all__ = ["GradientTransformation", "RuleState", "gradient_transformation"]


class GradientTransformation(NamedTuple):
    """The pair of functions that optax builds on: `init(params)`, and `update(grads, state, params)`."""

    init: Callable[[Any], RuleState]
    update: Callable[[Any, RuleState, Any], tuple[Any, RuleState]]


class RuleState(NamedTuple):
    """The state of a rule, a tree of arrays.

    Attributes:
        count: Completed updates.
        slots: The slots of each parameter, in the order of the leaves.
        shared: The slots that all parameters share.
    """

    count: Array
    slots: tuple[dict[str, Array], ...]
    shared: dict[str, Array]


def gradient_transformation(rule: Optimizer) -> GradientTransformation:
    """A rule as a gradient transformation; the updates it gives are to be added to the parameters.

    Works with `optax.apply_updates` and `optax.chain`, and on trees of numpy arrays too. `update` may run under
    `jax.jit`; `init` needs the values of the parameters.
    Scalars are float64 where the arrays' library has it; JAX does with `jax_enable_x64`, and uses float32 otherwise.

    Args:
        rule: The rule, with its learning rate or schedule.

    Raises:
        ConfigurationError: The rule needs random numbers, curvature or the loss, which a gradient transformation is
            not given.
    """

    def init(params: Any) -> RuleState:
        leaves, _ = flatten(params)
        check_real(getattr(leaf, "dtype", type(leaf).__name__) for leaf in leaves)
        arrays = {str(place): _numpy(leaf) for place, leaf in enumerate(leaves)}
        if rule.shared_ingredients(arrays) or any(rule.ingredients(array) for array in arrays.values()):
            raise ConfigurationError(f"{type(rule).__name__} needs more than gradients; it works in a bundle.")
        xp = _namespace(leaves)
        slots = tuple(_tensors(xp, rule.init(array)) for array in arrays.values())
        return RuleState(xp.asarray(0, dtype=xp.int64), slots, _tensors(xp, rule.init_shared(arrays)))

    def update(grads: Any, state: RuleState, params: Any = None) -> tuple[Any, RuleState]:
        if params is None:
            raise ConfigurationError("Update rules move parameters: call update(grads, state, params).")
        leaves, structure = flatten(params)
        gradients, _ = flatten(grads)
        xp = _namespace(leaves)
        _check_state(rule, leaves, state)

        def scalar(value: Any) -> Array:
            return xp.asarray(value, dtype=xp.float64)

        names = [str(place) for place in range(len(leaves))]
        hyper = {name: scalar(value) for name, value in rule.hyperparameters().items()}
        hyper["lr"] = rate(xp, rule, rule.schedule.base, state.count, scalar)
        group = GroupArrays(
            dict(zip(names, leaves, strict=True)),
            dict(zip(names, gradients, strict=True)),
            dict(zip(names, state.slots, strict=True)),
            state.shared,
        )
        moved, slots, shared = rule.update_all(xp, group, hyper, xp.asarray(state.count + 1))
        changes = [moved[name] - leaf for name, leaf in zip(names, leaves, strict=True)]
        kept = tuple({**old, **slots[name]} for name, old in zip(names, state.slots, strict=True))
        return unflatten(structure, changes), RuleState(state.count + 1, kept, {**state.shared, **shared})

    return GradientTransformation(init, update)


def _check_state(rule: Optimizer, leaves: list[Any], state: Any) -> None:
    """Check that a state is one of this rule for such parameters.

    Raises:
        ConfigurationError: It is not.
    """
    if not isinstance(state, RuleState):
        raise ConfigurationError(f"update takes the state that init gave, not {type(state).__name__}.")
    if len(state.slots) != len(leaves):
        raise ConfigurationError(f"This state is one of {len(state.slots)} parameters, and there are {len(leaves)}.")
    check_real(leaf.dtype for leaf in leaves)
    for number, (leaf, slots) in enumerate(zip(leaves, state.slots, strict=True)):
        expected = {slot: array.shape for slot, array in rule.init(_placeholder(leaf)).items()}
        found = {slot: tuple(array.shape) for slot, array in slots.items()}
        if found != expected:
            raise ConfigurationError(
                f"This state is not that of {type(rule).__name__}: parameter {number} has slots {found}, where it "
                f"needs {expected}."
            )


def _placeholder(leaf: Any) -> np.ndarray[Any, Any]:
    """Zeros in the shape of a leaf that take no memory."""
    return np.broadcast_to(np.zeros((), np.float32), tuple(leaf.shape))


def _numpy(leaf: Any) -> np.ndarray[Any, Any]:
    """The values of a leaf, which some rules begin with; under `jax.jit` there are none, and JAX says so."""
    return np.asarray(leaf)


def _tensors(xp: Namespace, arrays: dict[str, np.ndarray[Any, Any]]) -> dict[str, Array]:
    return {name: xp.asarray(array) for name, array in arrays.items()}


def _namespace(leaves: list[Any]) -> Namespace:
    """The Array API functions of the leaves' library."""
    if not leaves:
        raise ConfigurationError("There is no parameter to update.")
    xp = array_api_compat.array_namespace(*leaves)
    if "jax" not in sys.modules or not array_api_compat.is_jax_namespace(xp):
        return xp
    return _Canonical(xp, sys.modules["jax"].dtypes.canonicalize_dtype)


class _Canonical:
    """JAX's functions, with float32 for float64 where JAX has no 64 bits; it would warn of each one otherwise."""

    def __init__(self, xp: Namespace, canonical: Callable[[Any], Any]) -> None:
        self._xp = xp
        self.float64, self.int64 = canonical(xp.float64), canonical(xp.int64)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._xp, name)
