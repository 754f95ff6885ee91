"""Symbolic dimensions in the forms of torch.export and torch.onnx, as names by input and axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgeopt.components import described
from edgeopt.errors import SignatureError

__all__ = ["named_dimensions"]

BATCH = "batch"


def named_dimensions(
    dynamic_shapes: Any, shapes: Mapping[str, Sequence[Any]], *, dynamic_batch: bool
) -> dict[str, dict[int, str]]:
    """The dimensions that shall be symbolic, `{"tokens": {1: "sequence"}}`, from any of the forms in use.

    For each input: names by axis; or an entry for each axis, in order; or None. All of it by the names of the inputs,
    in their order, or, where there is one input, for that alone. A dimension is called by a word or by a
    `torch.export.Dim`, whose bounds are left behind, or by `Dim.DYNAMIC` or `Dim.AUTO`, which become a name. None, and
    `Dim.STATIC` or a size beside axis 0, leave an axis as it is without them.

    Args:
        dynamic_shapes: What was given.
        shapes: The shape of each input, in order.
        dynamic_batch: Whether axis 0 is symbolic anyway.

    Raises:
        SignatureError: It has another form, or names an input or axis that there is not.
    """
    named = {}
    for name, own in _by_input(dynamic_shapes, tuple(shapes)).items():
        shape = shapes[name]
        found: dict[int, str] = {}
        for axis, dimension in _by_axis(name, own, len(shape)):
            if isinstance(axis, bool) or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
                raise SignatureError(f"dynamic_shapes names axis {axis!r} of {name!r}, whose shape is {tuple(shape)}.")
            place = axis % len(shape)
            symbol = _symbol(name, place, dimension, shape[place], dynamic_batch)
            if symbol is not None and found.setdefault(place, symbol) != symbol:
                raise SignatureError(f"dynamic_shapes[{name!r}] names axis {place} twice.")
        if found:
            named[name] = found
    return named


def _by_input(given: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, Mapping) and all(isinstance(key, int) for key in given) and given and len(names) == 1:
        return {names[0]: given}
    if isinstance(given, Mapping):
        unknown = [key for key in given if key not in names]
        if unknown:
            raise SignatureError(f"dynamic_shapes names {unknown}, but the inputs are {list(names)}.")
        return dict(given)
    if not isinstance(given, (list, tuple)):
        raise SignatureError(
            f"dynamic_shapes takes names by input and axis, {{{names[0]!r}: {{0: 'batch'}}}}; got {described(given)}."
        )
    if len(names) == 1 and not any(isinstance(entry, (Mapping, list, tuple)) for entry in given):
        return {names[0]: given}
    if len(given) != len(names):
        raise SignatureError(
            f"dynamic_shapes has {len(given)} entries for the inputs {list(names)}; give one for each."
        )
    return dict(zip(names, given, strict=True))


def _by_axis(name: str, own: Any, rank: int) -> Iterator[tuple[Any, Any]]:
    if own is None:
        return
    if isinstance(own, Mapping):
        yield from own.items()
        return
    if not isinstance(own, (list, tuple)):
        raise SignatureError(
            f"dynamic_shapes[{name!r}] is {described(own)}; give {{axis: name}}, as in {{1: 'length'}}, or an entry "
            "for each axis."
        )
    if len(own) != rank:
        raise SignatureError(f"dynamic_shapes[{name!r}] has {len(own)} entries, but {name!r} has {rank} axes.")
    yield from enumerate(own)


def _symbol(name: str, axis: int, dimension: Any, size: Any, dynamic_batch: bool) -> str | None:
    """What a dimension is called; None where it stays as it is without being named."""
    where = f"dynamic_shapes[{name!r}][{axis}]"
    if dimension is None:
        return None
    if isinstance(dimension, str):
        if not dimension:
            raise SignatureError(f"{where} is {dimension!r}; give the dimension a name.")
        return dimension
    hint = getattr(getattr(dimension, "type", None), "name", None)
    if hint in ("DYNAMIC", "AUTO"):
        return BATCH if axis == 0 else f"{name}_{axis}"
    if hint == "STATIC" or (isinstance(dimension, int) and not isinstance(dimension, bool)):
        if hint is None and isinstance(size, int) and dimension != size:
            raise SignatureError(f"{where} is {dimension}, but the size is {size} in the example.")
        if axis == 0 and dynamic_batch:
            raise SignatureError(f"{where} is fixed, but axis 0 is the batch; give dynamic_batch=False to fix it.")
        return None
    symbol = getattr(dimension, "__name__", None)
    if getattr(dimension, "root", None) is not None or not isinstance(symbol, str) or isinstance(dimension, type):
        raise SignatureError(
            f"{where} is {symbol if getattr(dimension, 'root', None) is not None else described(dimension)}; give the "
            "dimension a name, as in 'length'."
        )
    return symbol
