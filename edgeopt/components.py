"""From words to losses, optimizers and the like: `adamw:weight_decay=0.01,amsgrad=true`.

The command line and the arguments of `edgeopt.export` read the same words.
"""

from __future__ import annotations

import functools
import inspect
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, Generic, TypeVar

from edgeopt.arguments import expanded, settings_of
from edgeopt.errors import ConfigurationError
from edgeopt_runtime.calls import did_you_mean

__all__ = ["Kind", "described", "read"]

T = TypeVar("T")

PLUS = re.compile(r"\s\+\s")  # not that of 1e+3
FACTOR = re.compile(r"\s*(?P<number>[-+.\w]+)\s*\*\s*(?P<rest>.*)", re.DOTALL)
# A comma that no bracket follows before the next opens one: `a=[1,2],b=3` has one.
OUTER_COMMA = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """Losses, or metrics, or another kind of component: what there is, and how it may be given.

    Names are compared without regard to case, spaces, hyphens and underscores; a class's own name is one, too.

    Attributes:
        name: What it is, for messages: `optimizer`.
        base: The class of them all.
        registry: Classes by name.
        example: How one is written, for messages: `edgeopt.losses.CrossEntropy()`.
        aliases: More names for members of the registry: those that other frameworks have for the same formula.
        addable: Whether they can be added and multiplied by numbers: `a + 0.3 * b`.
        pairs: What is made of a member of the registry and a setting that its name says, by that name.
        elsewhere: Names of other frameworks for what has no equal, each with the end of a sentence that says what to
            use in its place.
    """

    name: str
    base: type[T]
    registry: Mapping[str, type[T]]
    example: str
    aliases: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    pairs: Mapping[str, Callable[..., T]] = field(default_factory=dict)
    addable: bool = False

    def one(self, value: object) -> T:
        """What was given: a component itself, or one made from its class or from words.

        Raises:
            ConfigurationError: It is something else, or no component can be made of it.
        """
        if isinstance(value, self.base):
            return value
        if isinstance(value, str):
            return self.build(value)
        if isinstance(value, type) and issubclass(value, self.base) and not inspect.isabstract(value):
            if missing := _missing(value, ()):
                names = ", ".join(f"{name}=..." for name in missing)
                raise ConfigurationError(f"{value.__name__} is a class; give {value.__name__}({names}).")
            return value()
        raise ConfigurationError(
            f"The {self.name} must be one of edgeopt's, {self.example}, or its name; got {described(value)}."
        )

    def several(self, values: object) -> tuple[T, ...]:
        """Any number of them; one alone need not stand in a list, and None stands for none.

        Raises:
            ConfigurationError: See `one`.
        """
        if values is None:
            return ()
        # A NamedTuple, such as one of optax's transformations, is no list of components.
        if not isinstance(values, Iterable) or isinstance(values, (str, type)) or hasattr(values, "_fields"):
            return (self.one(values),)
        return tuple(map(self.one, values))

    def build(self, text: str) -> T:
        """Make what `text` describes.

        Args:
            text: A name, or a name, a colon and settings: `NAME:key=value,key=value`, a value being a number, true,
                false, a list in brackets, or a word. Of a kind that is `addable`, several with factors,
                `NAME:key=value + 0.3 * NAME`, with spaces around the plus.

        Raises:
            ConfigurationError: Unknown name or setting, one is missing or given twice, or the class refuses a value.
        """
        if not self.addable:
            return self.make(*read(text))
        first, *others = [self._scaled(part, text) for part in PLUS.split(text)]
        total: T = functools.reduce(operator.add, others, first)
        return total

    def _scaled(self, part: str, text: str) -> Any:
        """One of a sum, with its factor, if it has one."""
        if text.strip() and not part.strip():
            raise ConfigurationError(f"{text!r}: there is no {self.name} on one side of a plus.")
        found = FACTOR.fullmatch(part)
        if found is None:
            return self.make(*read(part))
        try:
            factor = float(found["number"])
        except ValueError:
            raise ConfigurationError(
                f"{text!r}: {found['number']!r} is no factor; a sum looks like {self.name}_a + 0.3 * {self.name}_b."
            ) from None
        made: Any = self.make(*read(found["rest"]))
        return factor * made

    def make(self, name: str, settings: Mapping[str, object]) -> T:
        """Make the one of that name with these settings. Raises what `build` raises."""
        pair = {_plain(each): pair for each, pair in self.pairs.items()}.get(_plain(name))
        if pair is not None:
            return pair(**settings)
        return _configured(name, self.find(name), settings)

    def find(self, name: str) -> type[T]:
        """The class of that name.

        Raises:
            ConfigurationError: There is none.
        """
        own = {_plain(each): each for each in self.registry}
        classes = {_plain(cls.__name__): each for each, cls in self.registry.items()}
        aliases = {_plain(alias): each for alias, each in self.aliases.items()}
        found = {**aliases, **classes, **own}.get(_plain(name))
        if found is not None:
            return self.registry[found]
        instead = {_plain(each): why for each, why in self.elsewhere.items()}.get(_plain(name))
        if instead is not None:
            raise ConfigurationError(f"There is no {self.name} {name!r}: {instead}.")
        hint = did_you_mean(name, [*self.registry, *self.pairs])
        raise ConfigurationError(
            f"There is no {self.name} {name!r}{hint} Choose from {', '.join(sorted(self.registry))}."
        )


def read(text: str) -> tuple[str, dict[str, object]]:
    """The name and the settings that a text consists of.

    Raises:
        ConfigurationError: A setting has no value, or two have one name.
    """
    name, _, listing = text.partition(":")
    settings: dict[str, object] = {}
    for part in OUTER_COMMA.split(listing):
        if part.strip():
            key, value = _setting(part, text)
            if key in settings:
                raise ConfigurationError(f"{text!r} gives {key!r} twice; give it once.")
            settings[key] = value
    return name.strip(), settings


def described(value: object) -> str:
    """What a value is, in a few words: `a list`, `the function optax.adamw`, `the class torch.AdamW`."""
    if isinstance(value, type):
        return f"the class {_qualified(value)}"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"the function {_qualified(value)}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    name = _qualified(type(value))
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def _qualified(value: Any) -> str:
    package = str(getattr(value, "__module__", "")).partition(".")[0]
    return str(value.__qualname__) if package in ("", "builtins", "__main__") else f"{package}.{value.__qualname__}"


def _configured(name: str, cls: type[T], settings: Mapping[str, Any]) -> T:
    known = all(key in settings_of(cls) for key in settings)  # the class itself has a word on others
    if known and (missing := _missing(cls, expanded(cls, settings))):
        example = ",".join(f"{key}=..." for key in missing)
        raise ConfigurationError(f"{name} needs {', '.join(missing)}: {name}:{example}")
    return cls(**settings)


def _missing(cls: type[Any], settings: Iterable[str]) -> list[str]:
    """The settings that have no default and were not given."""
    given = set(settings)
    return [
        each.name
        for each in (fields(cls) if is_dataclass(cls) else ())
        if each.init and each.default is MISSING and each.default_factory is MISSING and each.name not in given
    ]


def _setting(part: str, text: str) -> tuple[str, object]:
    key, equals, value = part.partition("=")
    if not equals:
        raise ConfigurationError(f"{text!r}: settings look like key=value, got {part!r}.")
    try:
        parsed = json.loads(value)
    except json.JSONDecodeError:
        return key.strip(), value.strip()
    return key.strip(), tuple(parsed) if isinstance(parsed, list) else parsed
