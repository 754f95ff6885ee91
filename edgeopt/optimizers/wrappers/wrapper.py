"""Optimizers that go around another one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import ranges_of, require
from edgeopt.optimizers.base import Arrays, GroupArrays, Optimizer, Updated, UpdatedAll
from edgeopt.optimizers.ingredients import Ingredient
from edgeopt.optimizers.kept import Kept
from edgeopt.schedules import Schedule
from edgeopt_runtime.ranges import Range

__all__ = ["Following", "Wrapper", "beside"]

NumpyArray: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Wrapper(Optimizer):
    """An optimizer around another one, which is asked for everything that the outer one does not say itself.

    Raises:
        ConfigurationError: `inner` is no optimizer.
    """

    inner: Optimizer

    def __post_init__(self) -> None:
        require(isinstance(self.inner, Optimizer), f"inner must be an optimizer, got {self.inner!r}")

    @property
    def schedule(self) -> Schedule:
        """The schedule of the inner optimizer."""
        return self.inner.schedule

    @property
    def elementwise(self) -> bool:
        """As the inner optimizer."""
        return self.inner.elementwise

    def formats(self, param: NumpyArray) -> dict[str, Kept]:
        """Those of the inner optimizer's slots."""
        return self.inner.formats(param)

    def for_parameter(self, name: str) -> Optimizer:
        """The same around what the inner optimizer is for a parameter of that name."""
        inner = self.inner.for_parameter(name)
        return self if inner is self.inner else replace(self, inner=inner)

    def joins(self, param: NumpyArray) -> bool:
        """As the inner optimizer."""
        return self.inner.joins(param)

    def init(self, param: NumpyArray) -> dict[str, NumpyArray]:
        """Return the slots of the inner optimizer."""
        return self.inner.init(param)

    def init_shared(self, params: Mapping[str, NumpyArray]) -> dict[str, NumpyArray]:
        """Return the shared slots of the inner optimizer."""
        return self.inner.init_shared(params)

    def ingredients(self, param: NumpyArray) -> dict[str, Ingredient]:
        """Return what the inner optimizer needs."""
        return self.inner.ingredients(param)

    def shared_ingredients(self, params: Mapping[str, NumpyArray]) -> dict[str, Ingredient]:
        """Return what the inner optimizer needs."""
        return self.inner.shared_ingredients(params)

    def hyperparameters(self) -> dict[str, float]:
        """Return the numbers of the inner optimizer."""
        return self.inner.hyperparameters()

    def ranges(self) -> dict[str, Range]:
        """Return the ranges of the inner optimizer's numbers, and of those that are not its own."""
        inner = self.inner.hyperparameters()
        return {**self.inner.ranges(), **ranges_of(self, self.hyperparameters().keys() - inner.keys())}

    def view(self, xp: Namespace, param: Array, state: Arrays, hyper: Arrays, step: Array) -> Array:
        """Return the view of the inner optimizer."""
        return self.inner.view(xp, param, state, hyper, step)


@dataclass(frozen=True)
class Following(Wrapper):
    """A wrapper that goes on from where a step of the inner optimizer has led, with each parameter on its own."""

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Take a step of the inner optimizer, and go on from there."""
        moved, slots = self.inner.update(xp, param, grad, state, hyper, step)
        return self.follow(xp, moved, slots, state, hyper, step)

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Take a step of the inner optimizer, and go on from there with each parameter on its own."""
        moved, slots, shared = self.inner.update_all(xp, group, hyper, step)
        results = {
            name: self.follow(xp, moved[name], slots[name], group.states[name], hyper, step) for name in group.params
        }
        return {name: own[0] for name, own in results.items()}, {name: own[1] for name, own in results.items()}, shared

    @abstractmethod
    def follow(
        self, xp: Namespace, param: Array, slots: dict[str, Array], state: Arrays, hyper: Arrays, step: Array
    ) -> Updated:
        """Return what becomes of the parameter and the slots that the inner optimizer has left."""


_Value = TypeVar("_Value")


def beside(inner: Mapping[str, _Value], own: Mapping[str, _Value]) -> dict[str, _Value]:
    """The slots or the numbers of an optimizer, and behind them those of what goes around it.

    Raises:
        ConfigurationError: Both have one of that name: two wrappers of one kind, or one around a rule that is built so.
    """
    twice = ", ".join(sorted(inner.keys() & own.keys()))
    require(not twice, f"the inner optimizer has {twice} already; it cannot be wrapped in this")
    return {**inner, **own}
