"""Optimizer state of bitsandbytes and torchao: blocks of 8-bit and 4-bit codes, in and out, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from edgeopt.optimizers.kept import Kept, by_slot, decoded, format_of, narrowed, part_name
from edgeopt.optimizers.slots import SIGNED
from edgeopt.quantization import FORMATS, Codebook, Format
from edgeopt_runtime.errors import StateError

__all__ = ["Slot", "is_narrow", "keep", "read_entry", "values_of", "whole", "written_entry"]

NumpyArray = np.ndarray[Any, Any]

# Where bitsandbytes hides its tensors from FSDP.
_WRAPPED = "__bnb_optimizer_quant_state__"

# The slots here of what bitsandbytes calls state1 and state2.
_FIRST = ("exp_avg", "momentum_buffer", "square_avg", "sum")
_SECOND = "exp_avg_sq"
_SLOW = "exp_avg_slow"

# By class of torchao's tensors: the format, and what its scale is of the largest magnitude of a block.
_TORCHAO = {
    "OptimState8bit": ("int8_dynamic", 1.0),
    "OptimState4bit": ("int4", 1.0),
    "OptimStateFp8": ("fp8_e4m3", 448.0),
}

# The maps of bitsandbytes, qmap1 and qmap2.
_FORMS = tuple(form for form in FORMATS["int8_dynamic"] if isinstance(form, Codebook))


class Slot(NamedTuple):
    """A slot in a format, by its parts."""

    form: Format
    parts: Mapping[str, NumpyArray]


def values_of(names: Mapping[str, NumpyArray], like: NumpyArray | None) -> dict[str, NumpyArray]:
    """The slots of a parameter as its rule knows them.

    Args:
        names: Arrays by the names of slots and of parts.
        like: The parameter, which says shape and dtype; needed where slots are in formats.

    Raises:
        StateError: They are, and there is none.
    """
    plain, parts = by_slot(names)
    if parts and like is None:
        raise StateError("State in formats is read together with the parameters that it belongs to; give them as well.")
    return plain | {slot: decoded(kept, own, np.asarray(like)) for slot, (kept, own) in parts.items()}


def keep(slot: str, value: NumpyArray | Slot, kept: Kept, like: NumpyArray) -> dict[str, NumpyArray]:
    """The parts of a slot in a format, by their full names: those that it comes in, or new ones."""
    if isinstance(value, Slot) and value.form == kept.form:
        return {part_name(slot, kept.name, part): each for part, each in value.parts.items()}
    return narrowed({slot: whole(value, like)}, {slot: kept})


def whole(value: NumpyArray | Slot, like: NumpyArray) -> NumpyArray:
    """A slot as the rule of a parameter knows it."""
    return decoded(Kept("", value.form), value.parts, like) if isinstance(value, Slot) else value


def read_entry(entry: Mapping[str, Any], slots: Collection[str]) -> dict[str, Any]:
    """What an optimizer of PyTorch keeps for a parameter, by our names; what is in a format as a `Slot`.

    Args:
        entry: The entry of its `state_dict`.
        slots: The slots that the rule here has.

    Raises:
        StateError: It is in blocks of another size, or in a map that is not known here.
    """
    found = {**entry, **entry.get(_WRAPPED, {})}
    found.pop(_WRAPPED, None)
    if "state1" not in found:
        return {name: _torchao(name, value) for name, value in found.items()}
    values = {name: value for name, value in found.items() if not re.match("state|qmap|absmax|unorm", name)}
    for place, names in enumerate(_held(slots), 1):
        state, absmax = found.get(f"state{place}"), found.get(f"absmax{place}")
        if state is None:
            continue
        form = _map(place, found.get(f"qmap{place}")) if absmax is not None else None
        several = len(names) > 1
        for number, name in enumerate(names):
            array = _array(state[number] if several else state)
            if form is None or absmax is None:
                values[name] = array
            else:
                scale = _array(absmax[number] if several else absmax)
                values[name] = Slot(form, {"codes": array, "absmax": scale})
    return values


def written_entry(
    optimizer: Any, param: torch.Tensor, names: Mapping[str, NumpyArray], like: NumpyArray, step: int
) -> dict[str, Any]:
    """The entry of a parameter in the state of an optimizer of bitsandbytes or torchao.

    Args:
        optimizer: The optimizer.
        param: Its parameter.
        names: Arrays by the names of slots and of parts.
        like: The parameter here.
        step: How many updates there have been.
    """
    plain, parts = by_slot(names)
    slots: dict[str, NumpyArray | Slot] = plain | {slot: Slot(kept.form, own) for slot, (kept, own) in parts.items()}
    if _package(optimizer) == "torchao":
        made = {
            slot: _for_torchao(optimizer._new_buffer(param, slot in SIGNED), slot, slots[slot], like) for slot in slots
        }
        return {**made, "step": torch.tensor(float(step))}
    entry: dict[str, Any] = {"step": step}
    narrow = optimizer.args.optim_bits == 8 and like.size >= optimizer.args.min_8bit_size
    for place, held in enumerate(_held(slots), 1):
        if not all(slot in slots for slot in held):
            continue
        form = _FORMS[place - 1]
        if narrow:
            own = [_parts(slots[slot], form, like) for slot in held]
            entry[f"state{place}"] = _stack([each["codes"] for each in own])
            entry[f"absmax{place}"] = _stack([each["absmax"] for each in own])
            entry[f"qmap{place}"] = optimizer.name2qmap["udynamic" if place == 2 else "dynamic"]
        else:
            entry[f"state{place}"] = _stack([whole(slots[slot], like) for slot in held])
    return entry


def is_narrow(optimizer: object) -> bool:
    """Whether it is one of bitsandbytes or torchao."""
    return _package(optimizer) in ("bitsandbytes", "torchao")


def _package(optimizer: object) -> str:
    return type(optimizer).__module__.partition(".")[0]


def _held(slots: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The slots that bitsandbytes calls state1, two of AdEMAMix, and state2.

    Raises:
        StateError: There is none of these.
    """
    if _SLOW in slots:
        return ("exp_avg", _SLOW), (_SECOND,)
    found = next((name for name in _FIRST if name in slots), None)
    if found is None:
        raise StateError(f"bitsandbytes keeps nothing like {', '.join(slots) or 'this'}.")
    return (found,), (_SECOND,)


def _map(place: int, values: torch.Tensor | None) -> Format:
    """The format of what is in state1 or state2; the first one has a sign, even in rules that keep squares there."""
    form = _FORMS[place - 1]
    known = torch.tensor(form.table)
    if values is None or values.shape != known.shape or (values.cpu() - known).abs().max() > 1e-6:
        raise StateError(f"The codes of this state stand for other values than bitsandbytes' own: see qmap{place}.")
    return form


def _torchao(name: str, value: Any) -> Any:
    kind = _TORCHAO.get(type(value).__name__)
    if kind is None:
        return value
    form = format_of(name, FORMATS[kind[0]])
    block = getattr(form, "block", None)
    if form is None or value.block_size != block:
        raise StateError(f"{name} is in blocks of {value.block_size} elements, where they have {block} here.")
    codes = value.codes if value.codes.dtype == torch.uint8 else value.codes.view(torch.uint8)
    return Slot(form, {"codes": _array(codes), "absmax": _array(value.scale) * np.float32(kind[1])})


def _for_torchao(buffer: Any, slot: str, value: NumpyArray | Slot, like: NumpyArray) -> torch.Tensor:
    """A tensor of torchao's own making, with a slot in it."""
    kind = _TORCHAO.get(type(buffer).__name__)
    form = None if kind is None else format_of(slot, FORMATS[kind[0]])
    if kind is None or form is None:
        buffer.copy_(torch.tensor(whole(value, like)))
    else:
        parts = _parts(value, form, like)
        buffer.codes.copy_(torch.tensor(parts["codes"]).view(buffer.codes.dtype))
        buffer.scale.copy_(torch.tensor(parts["absmax"]) / kind[1])
    tensor: torch.Tensor = buffer
    return tensor


def _parts(value: NumpyArray | Slot, form: Format, like: NumpyArray) -> Mapping[str, NumpyArray]:
    return value.parts if isinstance(value, Slot) and value.form == form else form.first(whole(value, like))


def _stack(arrays: list[NumpyArray]) -> torch.Tensor:
    return torch.tensor(arrays[0] if len(arrays) == 1 else np.stack(arrays))


def _array(value: torch.Tensor) -> NumpyArray:
    array: NumpyArray = value.detach().cpu().numpy()
    return array
