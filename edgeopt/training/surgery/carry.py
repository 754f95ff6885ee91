"""Which state a new optimizer takes over from the old one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from edgeopt.optimizers import Optimizer, QuantizedState
from edgeopt.optimizers.meanings import AVERAGE, COPIES, LATE, MEANINGS, UNCORRECTED, Meaning
from edgeopt.training.names import SCHEDULE_START, STEP, slot_name
from edgeopt.training.updating.groups import UpdateGroup

__all__ = ["Carried", "OldRule", "carry_over"]

NumpyArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class OldRule:
    """What a bundle says about the rule of a parameter.

    Attributes:
        classes: Its class, then that of the rule which it wraps, and so on, without formats of state.
        numbers: The rule's numbers by their own names.
    """

    classes: tuple[str, ...]
    numbers: Mapping[str, float]


class Carried(NamedTuple):
    """What goes on.

    Attributes:
        sources: By name, the tensors that go on, with where they come from and a factor.
        in_view: Of the parameters that evaluation uses something else for, those for which it goes on to do so.
    """

    sources: dict[str, tuple[str, float]]
    in_view: frozenset[str]


class _Slot(NamedTuple):
    """A tensor of the new optimizer.

    Attributes:
        target: Its name.
        kind: What it means, or the slot's own name if that is known to its class alone.
        parameter: What it belongs to; None if the group shares it.
        source: The old tensor that means the same, and a factor; None if there is none.
    """

    target: str
    kind: str
    parameter: str | None
    source: tuple[str, float] | None


def carry_over(
    groups: Sequence[UpdateGroup],
    rules: Mapping[str, OldRule],
    old: Mapping[str, NumpyArray],
    seen: Collection[str] = (),
) -> Carried:
    """Decide what goes on.

    A slot goes on where both rules mean the same by it, up to a known factor, or are of one class. A rule that corrects
    the bias of averages which began at zero counts its updates, so it gets either all its averages together with the
    counter, or none, and then the counter starts anew for the whole bundle.

    Where evaluation uses something else than the parameter, it goes on to do so under a rule of the same class, and
    under another that averages as well. Elsewhere what evaluation used becomes the parameter, and copies of the
    parameter begin there.

    Args:
        groups: The new rules and their parameters, with slots as rules know them.
        rules: The old rule of each parameter.
        old: The old state, with slots as rules know them.
        seen: The parameters that evaluation uses something else for.
    """
    found = [(group, list(_slots(group, rules, old))) for group in groups]
    corrected = [(group, slots) for group, slots in found if classes(group.rule)[-1] not in UNCORRECTED]
    counts_on = all(slot.source is not None or slot.kind in LATE for _, slots in corrected for slot in slots)
    sources: dict[str, tuple[str, float]] = {}
    in_view: set[str] = set()
    for group, slots in found:
        if counts_on:
            chosen = slots
        elif classes(group.rule)[-1] in UNCORRECTED:
            # An average of parameters counts them, too.
            chosen = [slot for slot in slots if slot.kind != AVERAGE]
        else:
            chosen = []
        for parameter in group.members:
            own = [slot for slot in slots if slot.parameter == parameter]
            going = [slot for slot in own if slot in chosen and slot.source is not None]
            alike = rules[parameter].classes == classes(group.rule) and going == own
            if parameter in seen and (alike or any(slot.kind == AVERAGE for slot in going)):
                in_view.add(parameter)
        for slot in chosen:
            moved = slot.parameter in seen and slot.parameter not in in_view
            if slot.source is not None and not (moved and slot.kind in COPIES):
                sources[slot.target] = slot.source
    if counts_on and STEP in old:
        sources |= {name: (name, 1.0) for name in (STEP, SCHEDULE_START) if name in old}
    return Carried(sources, frozenset(in_view))


def classes(rule: Optimizer) -> tuple[str, ...]:
    """The rule's class, then that of the rule which it wraps, and so on; formats of state change no meaning."""
    inner = getattr(rule, "inner", None)
    own = () if isinstance(rule, QuantizedState) else (type(rule).__name__,)
    return (*own, *(classes(inner) if isinstance(inner, Optimizer) else ()))


def _slots(group: UpdateGroup, rules: Mapping[str, OldRule], old: Mapping[str, NumpyArray]) -> Iterator[_Slot]:
    """The slots of a group, with what there is for them."""
    numbers = {name: group.values[full].default for name, full in group.hyperparameters.items()}
    meanings = _meanings(classes(group.rule))
    for parameter, slots in group.slots.items():
        for slot, value in slots.items():
            source = _source(classes(group.rule), slot, numbers, rules[parameter])
            known = source is not None and _alike(old.get(slot_name(source[0], parameter)), value)
            yield _Slot(
                slot_name(slot, parameter),
                meanings[slot].kind if slot in meanings else slot,
                parameter,
                (slot_name(source[0], parameter), source[1]) if known and source is not None else None,
            )
    for slot, value in group.shared.items():
        name = group.shared_name(slot)
        same = all(rules[parameter].classes == classes(group.rule) for parameter in group.members)
        yield _Slot(name, slot, None, (name, 1.0) if same and _alike(old.get(name), value) else None)


def _alike(known: NumpyArray | None, value: NumpyArray) -> bool:
    return known is not None and (known.shape, known.dtype) == (value.shape, value.dtype)


def _meanings(names: Sequence[str]) -> dict[str, Meaning]:
    return {slot: meaning for name in reversed(names) for slot, meaning in MEANINGS.get(name, {}).items()}


def _source(names: Sequence[str], slot: str, numbers: Mapping[str, float], old: OldRule) -> tuple[str, float] | None:
    """The old slot that means the same, and what to multiply it by."""
    meaning = _meanings(names).get(slot)
    for name, other in _meanings(old.classes).items() if meaning is not None else ():
        if meaning is not None and other.kind == meaning.kind:
            return name, meaning.factor(numbers) / other.factor(old.numbers)
    return (slot, 1.0) if tuple(names) == old.classes else None
