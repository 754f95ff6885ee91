"""Batches that are nested as a model's arguments are, with the names that its inputs have."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["flattened", "merged"]


def flattened(batch: Mapping[Any, Any], names: Collection[str]) -> dict[Any, Any]:
    """The batch with what lies inside lists, tuples and mappings under the names of inputs, where those have them.

    Names are made as an export makes them of example inputs: ``name_0`` inside a list or tuple, ``name.key`` inside a
    mapping, ``name.field`` inside a NamedTuple. What leads to no input stays as it is.
    """
    flat: dict[Any, Any] = {}
    for name, value in batch.items():
        inside = {} if name in names else dict(_leaves(str(name), value, names))
        flat.update(inside or {name: value})
    return flat


def merged(batch: Sequence[Any], names: Sequence[str]) -> dict[Any, Any] | None:
    """Mappings and arrays side by side, ``(inputs by name, labels)``, as one mapping: arrays take the names left over.

    Returns:
        None if there is no mapping among them, or there are more or fewer arrays than names left.
    """
    mappings = [part for part in batch if isinstance(part, Mapping)]
    if not mappings:
        return None
    given: dict[Any, Any] = {}
    for part in mappings:
        given.update(flattened(part, names))
    left = [name for name in names if name not in given]
    arrays = [part for part in batch if not isinstance(part, Mapping)]
    return {**given, **dict(zip(left, arrays, strict=True))} if len(left) == len(arrays) else None


def _leaves(name: str, value: Any, names: Collection[str]) -> Iterator[tuple[str, Any]]:
    if name in names:
        yield name, value
        return
    for step, part in _parts(value):
        # Nothing else is looked into: a long list of numbers stays one value.
        if any(known.startswith(name + step) for known in names):
            yield from _leaves(name + step, part, names)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f".{key}", part) for key, part in value.items())
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from ((f".{field}", part) for field, part in zip(value._fields, value, strict=True))
    elif isinstance(value, (list, tuple)):
        yield from ((f"_{index}", part) for index, part in enumerate(value))
