"""The options of a configuration, each of which must be read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from edgeopt.errors import ConfigurationError

__all__ = ["Options"]


class Options:
    """Options by name, taken one by one.

    Args:
        owner: What they belong to, for messages: `torch.optim.AdamW`.
        values: Their values.
        ignored: Options that choose between implementations of the same formula.
    """

    def __init__(self, owner: str, values: Mapping[str, Any], ignored: Collection[str] = ()) -> None:
        self.owner = owner
        self._left = {name: value for name, value in values.items() if name not in ignored}

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, default: Any = None) -> Any:
        """An option, or its default in the other framework."""
        return self._left.pop(name, default)

    def take_none(self, name: str) -> bool:
        """Whether an option is None or left out; it is taken if so."""
        missing = self._left.get(name) is None
        if missing:
            self.take(name)
        return missing

    def number(self, name: str, default: float | None = None) -> float:
        """An option that must be a number; zero-dimensional arrays and tensors count.

        Raises:
            ConfigurationError: It is missing, or something else.
        """
        value = self.take(name, default)
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigurationError(f"{self.owner}: `{name}` must be a number, not {value!r}.") from error

    def count(self, name: str, default: int | None = None) -> int:
        """An option that must be a whole number."""
        number = self.number(name, default)
        if number != int(number):
            self.refuse(f"`{name}` must be a whole number, not {number!r}")
        return int(number)

    def optional_count(self, name: str) -> int | None:
        """An option that must be a whole number, or None, which it is if left out."""
        return None if self.take_none(name) else self.count(name)

    def flag(self, name: str, default: bool = False) -> bool:
        """An option that must be true or false."""
        value = self.take(name, default)
        if not isinstance(value, bool):
            self.refuse(f"`{name}` must be True or False, not {value!r}")
        return bool(value)

    def pair(self, name: str, default: tuple[Any, Any]) -> tuple[Any, Any]:
        """An option that must be two values."""
        value = self.take(name, default)
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            self.refuse(f"`{name}` must be two values, not {value!r}")
        return value[0], value[1]

    def only(self, name: str, *allowed: Any, because: str = "has no equal here") -> None:
        """Take an option that may have some values only; left out, it has one of them.

        Raises:
            ConfigurationError: It has another value.
        """
        value = self.take(name, allowed[0])
        if not any(value is each or value == each for each in allowed):
            self.refuse(f"`{name}={value!r}` {because}")

    def finish(self) -> None:
        """Refuse what nobody took.

        Raises:
            ConfigurationError: There is something left.
        """
        if self._left:
            listing = ", ".join(f"{name}={value!r}" for name, value in self._left.items())
            self.refuse(f"no equal of the option(s) {listing} is known")

    def refuse(self, why: str) -> NoReturn:
        """Raise a `ConfigurationError` that says whose options these are."""
        raise ConfigurationError(f"{self.owner}: {why}.")
