"""How components take their arguments: one spelling each, lists for tuples, and a word on every other name."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from abc import ABCMeta
from collections.abc import Callable, Mapping
from dataclasses import Field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from edgeopt.errors import ConfigurationError
from edgeopt.synonyms import NOT_HERE, SYNONYMS

__all__ = ["Component", "expanded", "settings_of"]


class Component(ABCMeta):
    """The class of optimizers, schedules, transforms, losses, metrics and groups: it checks how they are called.

    Before the constructor sees its arguments,

    - a setting of several numbers becomes the fields that it stands for: `betas` those called `beta1`, `beta2` and, if
      there is one, `beta3`; others as the class says in `combined`;
    - a number in other units (`eta_min` for `min_lr_ratio`) is worked out as the class says in `converted`;
    - lists, ranges and arrays become tuples where the field is one;
    - a name that the class does not have is refused, with the name that was probably meant.

    Settings in `around` are not the constructor's: what they say goes around what it makes.

    A class may limit the arguments that are taken by position with `positional`.
    """

    #: Settings that stand for several fields, which they give in this order.
    combined: Mapping[str, tuple[str, ...]] = {}

    #: Settings in other units: the field that each gives, and how, from its value and all settings.
    converted: Mapping[str, tuple[str, Callable[[Any, Mapping[str, Any]], Any]]] = {}

    #: Settings that put something around what is made: what does so, from that and their value. None leaves it alone.
    around: Mapping[str, Callable[[Any, Any], Any]] = {}

    #: How many arguments may be given by position; None sets no limit.
    positional: int | None = None

    if not TYPE_CHECKING:  # a type checker has to see the constructor of each class, not what is common to all

        def __call__(cls, *args, **kwargs):
            """Make an instance."""
            parameters = _parameters(cls)
            if parameters is None:
                return super().__call__(*args, **kwargs)
            names = [name for name, each in parameters.items() if each.kind is not each.KEYWORD_ONLY]
            limit = len(names) if cls.positional is None else cls.positional
            if len(args) > limit:
                first = ", ".join(names[:limit])
                raise ConfigurationError(
                    f"{cls.__name__} takes {first or 'nothing'} by position, got {len(args)} values; "
                    f"name the others: {', '.join(f'{name}=...' for name in names[limit : len(args)]) or 'none'}"
                )
            given = dict(zip(names, args, strict=False))
            if twice := given.keys() & kwargs.keys():
                raise ConfigurationError(f"{cls.__name__} was given {', '.join(sorted(twice))} twice")
            given = expanded(cls, {**given, **kwargs})
            _known(cls, given)
            outer = {name: given.pop(name) for name in _around(cls) if name in given}
            missing = [name for name, each in parameters.items() if each.default is each.empty and name not in given]
            if missing:
                raise ConfigurationError(f"{cls.__name__} needs {', '.join(missing)}")
            sequences = _sequences(cls)
            made = super().__call__(
                **{name: _tuple(value) if name in sequences else value for name, value in given.items()}
            )
            for name, value in outer.items():
                made = made if value is None else cls.around[name](made, value)
            return made

    @property
    def __signature__(cls) -> inspect.Signature:
        """The constructor's own, where `help` and editors would otherwise show `(*args, **kwargs)`."""
        own = list(inspect.signature(cls.__init__).parameters.values())[1:]  # type: ignore[misc] # of a class, no object
        return inspect.Signature(own)


def expanded(cls: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a component with those that stand for others, as `betas` does, replaced by these.

    Raises:
        ConfigurationError: Both are given, or not as many values as there are fields.
    """
    found = dict(settings)
    if not isinstance(cls, Component):
        return found
    for name, parts in _combined(cls).items():
        if found.get(name) is None:
            found.pop(name, None)
            continue
        values = _tuple(found.pop(name))
        if both := [part for part in parts if part in found]:
            raise ConfigurationError(f"{cls.__name__} takes {name} or {', '.join(both)}, not both")
        if not isinstance(values, tuple) or not 2 <= len(values) <= len(parts):
            raise ConfigurationError(f"{name} must hold {len(parts)} values ({', '.join(parts)}), got {values!r}")
        found.update(zip(parts, values, strict=False))
    for name, (field, convert) in cls.converted.items():
        if found.get(name) is None:
            found.pop(name, None)
            continue
        if field in found:
            raise ConfigurationError(f"{cls.__name__} takes {name} or {field}, not both")
        found[field] = convert(found.pop(name), found)
    return found


def settings_of(cls: type) -> dict[str, Field[Any] | None]:
    """What a component can be given: its fields, and with None for a field what stands for others or goes around."""
    own: dict[str, Field[Any] | None] = {each.name: each for each in _fields(cls) if each.init}
    more = (*_combined(cls), *cls.converted, *_around(cls)) if isinstance(cls, Component) else ()
    return own | dict.fromkeys(more)


@functools.cache
def _parameters(cls: type) -> dict[str, inspect.Parameter] | None:
    """The constructor's parameters; None if it takes any."""
    own = list(inspect.signature(cls.__init__).parameters.values())[1:]  # type: ignore[misc] # of a class, no object
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.POSITIONAL_ONLY) for each in own):
        return None
    return {each.name: each for each in own}


@functools.cache
def _combined(cls: Component) -> dict[str, tuple[str, ...]]:
    """What stands for several fields of a class."""
    names = _parameters(cls) or {}
    betas = tuple(name for name in ("beta1", "beta2", "beta3") if name in names)
    own = {"betas": betas} if betas[:2] == ("beta1", "beta2") and "betas" not in names else {}
    return {**own, **cls.combined}


def _around(cls: Component) -> tuple[str, ...]:
    """The settings that put something around what a class makes; a field of that name is the class's own."""
    own = _parameters(cls)
    return tuple(name for name in cls.around if own is not None and name not in own)


@functools.cache
def _sequences(cls: type) -> frozenset[str]:
    """The fields that are declared as sequences."""
    return frozenset(each.name for each in _fields(cls) if re.search("tuple|Sequence", str(each.type)))


def _fields(cls: type) -> tuple[Field[Any], ...]:
    return fields(cls) if is_dataclass(cls) else ()


def _tuple(value: Any) -> Any:
    """A list, range or array as a tuple, and anything else as it is."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(value) if isinstance(value, (list, range)) else value


def _known(cls: Component, given: Mapping[str, Any]) -> None:
    """Refuse names that the class does not have."""
    names = [*(_parameters(cls) or ()), *_combined(cls), *cls.converted, *_around(cls)]
    for unknown in given:
        if unknown in names:
            continue
        meant = next((name for name in SYNONYMS.get(unknown, ()) if name in names), None)
        close = [meant] if meant else difflib.get_close_matches(unknown, names, 1, 0.75)
        if close:
            advice = f"it is called {close[0]} here"
        else:
            advice = NOT_HERE.get(unknown, f"it has {', '.join(names) or 'none'}")
        raise ConfigurationError(f"{cls.__name__} has no setting {unknown!r}; {advice}")
