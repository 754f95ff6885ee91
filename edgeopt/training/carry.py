"""Which state a new optimizer takes over from the old one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from edgeopt.optimizers import Optimizer
from edgeopt.optimizers.meanings import LATE, MEANINGS, UNCORRECTED, Meaning
from edgeopt.training.groups import UpdateGroup
from edgeopt.training.names import STEP, slot_name
from edgeopt.training.state import State

__all__ = ["Carried", "OldRule", "carry_over", "innermost"]

NumpyArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class OldRule:
    """What a bundle says about the rule of a parameter.

    Attributes:
        name: Its class, or that of the rule within it.
        wrapper: The class around it; the same if there is none.
        numbers: The rule's numbers by their own names.
    """

    name: str
    wrapper: str
    numbers: Mapping[str, float]


class Carried(NamedTuple):
    """By name, the tensors that go on, with where they come from and a factor."""

    sources: dict[str, tuple[str, float]]


def innermost(rule: Optimizer) -> Optimizer:
    """The rule that a wrapper wraps, or the rule itself."""
    inner = getattr(rule, "inner", None)
    return innermost(inner) if isinstance(inner, Optimizer) else rule


def carry_over(
    groups: Sequence[UpdateGroup], rules: Mapping[str, OldRule], old: Mapping[str, NumpyArray], state: State
) -> Carried:
    """Decide what goes on.

    A slot goes on where both rules mean the same by it, up to a known factor, or are of one class. A rule that corrects
    the bias of averages which began at zero counts its updates, so it gets either all its averages together with the
    counter, or none, and then the counter starts anew for the whole bundle.

    Args:
        groups: The new rules and their parameters.
        rules: The old rule of each parameter.
        old: The old state.
        state: The new state.
    """
    found = [(group, _matching(group, rules, old, state)) for group in groups]
    corrected = [entry for entry in found if type(innermost(entry[0].rule)).__name__ not in UNCORRECTED]
    counts_on = all(missing <= LATE for _, (_, missing) in corrected)
    sources: dict[str, tuple[str, float]] = {}
    for entry in found:
        if counts_on or entry not in corrected:
            sources |= entry[1][0]
    if counts_on and STEP in old:
        sources[STEP] = STEP, 1.0
    return Carried(sources)


def _matching(
    group: UpdateGroup, rules: Mapping[str, OldRule], old: Mapping[str, NumpyArray], state: State
) -> tuple[dict[str, tuple[str, float]], set[str]]:
    """What there is for a group, and the kinds of the slots for which there is nothing."""
    sources: dict[str, tuple[str, float]] = {}
    missing: set[str] = set()
    numbers = {name: state_number(group, name) for name in group.hyperparameters}
    for parameter, slots in group.slots.items():
        for slot, value in slots.items():
            target, rule = slot_name(slot, parameter), rules[parameter]
            source = _source(group.rule, slot, numbers, rule)
            candidate = None if source is None else old.get(slot_name(source[0], parameter))
            if source is None or candidate is None or (candidate.shape, candidate.dtype) != (value.shape, value.dtype):
                kind = _meanings(group.rule).get(slot)
                missing.add(slot if kind is None else kind.kind)
            else:
                sources[target] = slot_name(source[0], parameter), source[1]
    for slot, value in group.shared.items():
        name = group.shared_name(slot)
        known = old.get(name)
        alike = all(rules[parameter].wrapper == type(group.rule).__name__ for parameter in group.members)
        if alike and known is not None and (known.shape, known.dtype) == (value.shape, value.dtype):
            sources[name] = name, 1.0
        else:
            missing.add(slot)
    return sources, missing


def state_number(group: UpdateGroup, name: str) -> float:
    """The default of one of the rule's numbers."""
    return group.values[group.hyperparameters[name]].default


def _meanings(rule: Optimizer) -> Mapping[str, Meaning]:
    names = (type(innermost(rule)).__name__, type(rule).__name__)
    return {slot: meaning for name in names for slot, meaning in MEANINGS.get(name, {}).items()}


def _source(rule: Optimizer, slot: str, numbers: Mapping[str, float], old: OldRule) -> tuple[str, float] | None:
    """The old slot that means the same, and what to multiply it by."""
    meaning = _meanings(rule).get(slot)
    theirs = {**MEANINGS.get(old.name, {}), **MEANINGS.get(old.wrapper, {})}
    for name, other in theirs.items() if meaning is not None else ():
        if meaning is not None and other.kind == meaning.kind:
            return name, meaning.factor(numbers) / other.factor(old.numbers)
    same = (type(innermost(rule)).__name__, type(rule).__name__) == (old.name, old.wrapper)
    return (slot, 1.0) if same else None
