"""Slots in storage formats: what their parts are called, and the way there and back.

A slot `exp_avg` in the format `int8` is kept as `exp_avg__int8__codes` and `exp_avg__int8__absmax`, so that names tell
what state is in, wherever it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

from edgeopt import tracing
from edgeopt.array_types import Array, Namespace
from edgeopt.optimizers.slots import SIGNED, UNSIGNED
from edgeopt.quantization import FORMATS, Format, StateFormat

__all__ = ["OWN", "Kept", "StateLike", "by_slot", "decoded", "format_of", "narrowed", "part_name", "widened"]

NumpyArray: TypeAlias = np.ndarray[Any, Any]

#: The name of a format, a format, or names by patterns of parameter names; None for slots that stay as they are.
StateLike: TypeAlias = "str | StateFormat | Mapping[str, str | None]"

#: What a format is called that is not registered.
OWN = "own"

_JOINT = "__"


class Kept(NamedTuple):
    """How a slot is kept: the name of a format, and its part for such slots."""

    name: str
    form: Format


def format_of(slot: str, state: StateFormat) -> Format | None:
    """The one for a slot of that name; None where it stays as it is."""
    return state.signed if slot in SIGNED else state.unsigned if slot in UNSIGNED else None


def part_name(slot: str, kept: str, part: str) -> str:
    """What a part of a slot is called."""
    return _JOINT.join((slot, kept, part))


def by_slot(
    names: Mapping[str, Any], own: StateFormat | None = None
) -> tuple[dict[str, Any], dict[str, tuple[Kept, dict[str, Any]]]]:
    """What is kept as it is, and the parts of each slot that is not.

    Args:
        names: Values by names of slots and parts.
        own: The format that is called `OWN`; what is kept in it counts as kept as it is where that is not known.
    """
    plain: dict[str, Any] = {}
    parts: dict[str, tuple[Kept, dict[str, Any]]] = {}
    for name, value in names.items():
        slot, _, rest = name.partition(_JOINT)
        kept, _, part = rest.partition(_JOINT)
        state = own if kept == OWN else FORMATS.get(kept)
        form = None if state is None else format_of(slot, state)
        if form is None or not part:
            plain[name] = value
        else:
            parts.setdefault(slot, (Kept(kept, form), {}))[1][part] = value
    return plain, parts


def widened(
    xp: Namespace, names: Mapping[str, Any], shape: tuple[int, ...], dtype: Any, own: StateFormat | None = None
) -> dict[str, Array]:
    """The slots as a rule knows them; arguments are those of `by_slot` and of `Format.decode`."""
    plain, parts = by_slot(names, own)
    return plain | {slot: kept.form.decode(xp, values, shape, dtype) for slot, (kept, values) in parts.items()}


def decoded(kept: Kept, parts: Mapping[str, NumpyArray], param: NumpyArray) -> NumpyArray:
    """A slot as the rule of a parameter knows it; bfloat16 may lie in uint16, as it does in bundles."""
    parts = {name: part.view(ml_dtypes.bfloat16) if part.dtype == np.uint16 else part for name, part in parts.items()}
    dtype = np.float32 if param.dtype == np.float16 else param.dtype
    return np.asarray(kept.form.decode(tracing, parts, param.shape, dtype)).astype(param.dtype)


def narrowed(slots: Mapping[str, NumpyArray], formats: Mapping[str, Kept]) -> dict[str, NumpyArray]:
    """Slots as they are kept, without anything random; of float16 as of float32, which holds the scales of squares."""
    found: dict[str, NumpyArray] = {}
    for slot, value in slots.items():
        if (kept := formats.get(slot)) is None:
            found[slot] = value
        else:
            parts = kept.form.first(value.astype(np.float32) if value.dtype == np.float16 else value)
            found |= {part_name(slot, kept.name, part): each for part, each in parts.items()}
    return found
