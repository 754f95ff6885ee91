"""What every update rule provides."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from edgeopt.arguments import Component
from edgeopt.array_types import Array, Namespace
from edgeopt.checks import at_least, fraction, ranges_of
from edgeopt.optimizers.half import in_float32
from edgeopt.optimizers.ingredients import Ingredient
from edgeopt.optimizers.kept import Kept, StateLike
from edgeopt.schedules import Schedule, as_schedule
from edgeopt.schedules.base import annotated, numbers, static
from edgeopt_runtime.ranges import Range

__all__ = [
    "Arrays",
    "Collective",
    "GroupArrays",
    "Optimizer",
    "Rule",
    "Updated",
    "UpdatedAll",
    "initial_state",
    "static",
    "zeros",
]

#: Arrays by name: the slots of a parameter, or the hyperparameters.
Arrays: TypeAlias = Mapping[str, Array]

#: The next parameter and the next value of its slots.
Updated: TypeAlias = tuple[Array, dict[str, Array]]


class GroupArrays(NamedTuple):
    """What a group is updated from, by the names of its parameters; a name may stand for several that were joined.

    Attributes:
        params: The parameters.
        grads: Their gradients.
        states: For each parameter its slots and ingredients.
        shared: The slots of `Optimizer.init_shared` and the ingredients of `Optimizer.shared_ingredients`.
    """

    params: Arrays
    grads: Arrays
    states: Mapping[str, Arrays]
    shared: Arrays


#: The next parameters, the next values of the slots of each, and the next values of the shared slots.
UpdatedAll: TypeAlias = tuple[dict[str, Array], dict[str, dict[str, Array]], dict[str, Array]]

NumpyArray: TypeAlias = np.ndarray[Any, Any]


class Optimizer(metaclass=Component):
    """Updates parameters from their gradients and their slots.

    Numbers become inputs of the exported graph, with the fields as their defaults, so that a device can change them.
    Some fields are static instead, because they decide which slots and nodes exist.

    Most rules update each parameter on its own and implement `init` and `update`. A rule whose step depends on all
    parameters of its group together is a `Collective`.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in ("update", "update_all", "view"):
            if name in vars(cls):
                setattr(cls, name, in_float32(name, vars(cls)[name]))

    @property
    @abstractmethod
    def schedule(self) -> Schedule:
        """The learning rate as a schedule; it owns the hyperparameters of the rate."""

    @property
    def elementwise(self) -> bool:
        """Whether parameters may be joined into one vector and updated together.

        That is so where each element is updated on its own, and reductions, if there are any, span the whole group.
        """
        return True

    #: Slots that storage formats leave alone, though their names are those of others which need not be exact.
    exact_slots: ClassVar[frozenset[str]] = frozenset()

    def formats(self, param: NumpyArray) -> dict[str, Kept]:
        """The slots of a parameter that are kept in a storage format; see `QuantizedState`."""
        return {}

    def for_parameter(self, name: str) -> Optimizer:
        """The rule as it is for a parameter of that name: another one where formats go by name."""
        return self

    def joins(self, param: NumpyArray) -> bool:
        """Whether this parameter may be joined with others, see `elementwise`."""
        return self.elementwise

    def init(self, param: NumpyArray) -> dict[str, NumpyArray]:
        """Return the first value of each slot of a parameter, in a fixed order.

        Which slots there are and what shapes they have may depend on the parameter; the name of a slot means the same
        for each. An elementwise rule has slots in the shape of the parameter, and scalars that follow from the step
        and the learning rate alone.
        """
        return {}

    def init_shared(self, params: Mapping[str, NumpyArray]) -> dict[str, NumpyArray]:
        """Return the first value of each slot that the parameters of a group share."""
        return {}

    def ingredients(self, param: NumpyArray) -> dict[str, Ingredient]:
        """What an update of this parameter needs beside its gradient: random numbers, measurements.

        At each update their values are in `state` under these names, which differ from those of the slots.
        """
        return {}

    def shared_ingredients(self, params: Mapping[str, NumpyArray]) -> dict[str, Ingredient]:
        """What an update of a group needs for all its parameters together.

        At each update their values are among the shared slots under these names, which differ from theirs.
        """
        return {}

    @abstractmethod
    def hyperparameters(self) -> dict[str, float]:
        """Names and default values of the rule's own numbers. The learning rate belongs to the schedule."""

    def ranges(self) -> dict[str, Range]:
        """The values that a device may give to the rule's numbers, for those that are not free; see `ranges_of`."""
        return ranges_of(self, self.hyperparameters())

    @abstractmethod
    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Return the next parameter and the next value of every slot.

        A slot that is returned as it came, the same object, stays as it is and costs nothing.

        Args:
            xp: The namespace of the arrays.
            param: The parameter.
            grad: The gradient, of the parameter's shape and dtype.
            state: The slots, and the ingredients.
            hyper: The rule's hyperparameters and `"lr"`, the schedule's value at this step, as 0-d float64 arrays.
            step: A 0-d int64 array, 1 at the first update.
        """

    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Update all parameters of a group; `hyper` and `step` are those of `update`."""
        moved: dict[str, Array] = {}
        slots: dict[str, dict[str, Array]] = {}
        for name, param in group.params.items():
            moved[name], slots[name] = self.update(xp, param, group.grads[name], group.states[name], hyper, step)
        return moved, slots, {}

    def view(self, xp: Namespace, param: Array, state: Arrays, hyper: Arrays, step: Array) -> Array:
        """Return what stands for the parameter in evaluation, prediction and the exported model: itself by default.

        Args are those of `update`, except that `step` counts completed updates and is 0 before the first one, and that
        `hyper["lr"]` is the rate of the update to come. There are no ingredients.
        """
        return param


def _in_formats(rule: Optimizer, state: StateLike) -> Optimizer:
    from edgeopt.optimizers.wrappers.quantized_state import QuantizedState  # which is made of what is in this module

    return QuantizedState(rule, state)


@dataclass(frozen=True)
class Rule(Optimizer):
    """An update rule of its own, with a learning rate.

    A rule computes in the dtype of the parameter it is given, but with float16 in float32: what it sees of a float16
    parameter, of its gradient and its slots are float32 arrays, and what it returns is rounded. Its slots have that
    dtype, except for scalars that follow from the step and the learning rate alone, which are float64, and for what is
    kept as integers, which are int16 or uint8. ONNX Runtime computes little in those two: the rule casts them, and
    computes in others.

    Fields annotated `float` are the rule's numbers. They must be finite and, but for those in `any_sign`, at least 0;
    those called `beta…` are rates of moving averages and must be below 1. Static are all other fields, numbers made
    with `static`, and numbers that are exactly 0.0 where the rule says that this switches a term off.

    Raises:
        ConfigurationError: A number out of its range.
    """

    #: Names of numbers that are left out of the graph, together with their term, where they are exactly 0.0.
    optional: ClassVar[frozenset[str]] = frozenset()

    #: Names of numbers that may be negative.
    any_sign: ClassVar[frozenset[str]] = frozenset()

    #: Only the rate is given by position: what comes next differs between frameworks.
    positional: ClassVar[int] = 1

    #: `AdamW(state="int8")` is `QuantizedState(AdamW(), "int8")`.
    around: ClassVar[Mapping[str, Callable[[Any, Any], Any]]] = {"state": _in_formats}

    lr: Schedule | float = 1e-3

    if TYPE_CHECKING:
        #: Can be given in place of `beta1`, `beta2` and, if there is one, `beta3`, by rules that have these.
        betas: Sequence[float] | None = field(default=None, kw_only=True)

        #: In which storage format the slots are kept. With one, the result is a `QuantizedState` around the rule.
        state: StateLike | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        as_schedule(self.lr)  # checks a plain number
        for number in fields(self):
            if annotated(number, float):
                value = getattr(self, number.name)
                signed = number.name in self.any_sign
                if number.name.startswith("beta") and not signed:
                    fraction(number.name, value)
                else:
                    at_least(number.name, value, -math.inf if signed else 0.0)

    @property
    def schedule(self) -> Schedule:
        """The learning rate as a schedule; it owns the hyperparameters of the rate."""
        return as_schedule(self.lr)

    def hyperparameters(self) -> dict[str, float]:
        """Names and default values of the rule's own numbers, without those that are switched off."""
        return {name: value for name, value in numbers(self).items() if value or name not in self.optional}


class Collective(Optimizer):
    """A rule whose step depends on all parameters of its group: it implements `update_all`, and has shared slots.

    The shared slots have names that no slot of a parameter has.
    """

    def update(self, xp: Namespace, param: Array, grad: Array, state: Arrays, hyper: Arrays, step: Array) -> Updated:
        """Update a group of one parameter; the shared slots are among its own."""
        group = GroupArrays({"": param}, {"": grad}, {"": state}, state)
        moved, slots, shared = self.update_all(xp, group, hyper, step)
        return moved[""], {**slots[""], **shared}

    @abstractmethod
    def update_all(self, xp: Namespace, group: GroupArrays, hyper: Arrays, step: Array) -> UpdatedAll:
        """Return the next parameters, slots and shared slots; see `Optimizer.update` for what is given."""


def zeros(param: NumpyArray, *slots: str) -> dict[str, NumpyArray]:
    """Slots that begin as zeros in the shape and dtype of the parameter."""
    return {slot: np.zeros_like(param) for slot in slots}


def initial_state(optimizer: Optimizer, param: NumpyArray) -> dict[str, NumpyArray]:
    """The state that `Optimizer.update` takes for a group of one parameter: its slots and the shared ones."""
    return {**optimizer.init(param), **optimizer.init_shared({"": param})}
