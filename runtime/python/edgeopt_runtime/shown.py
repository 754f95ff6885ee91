"""Values and names from a bundle as they stand in messages: short, printable and cheap, whatever they are."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Any

__all__ = ["reason", "some", "value", "where"]

LONGEST = 80
MOST_NAMES = 5

# The usual `repr` copies all of a value, and fails on one that is nested deeper than the stack.
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 3
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = LONGEST
_SHORT.maxlist = _SHORT.maxdict = _SHORT.maxtuple = MOST_NAMES


def value(thing: Any) -> str:
    """A value from outside, at most 80 characters of it."""
    text = _SHORT.repr(thing)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def some(names: Iterable[str]) -> str:
    """The first names in alphabetical order, and how many more there are."""
    ordered = sorted(names)
    listed = ", ".join(f"`{_plain(name)}`" for name in ordered[:MOST_NAMES])
    return listed if len(ordered) <= MOST_NAMES else f"{listed} and {len(ordered) - MOST_NAMES} more"


def reason(error: BaseException) -> str:
    """What an exception says, for the middle of a sentence: one line without its full stop."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def where(path: object) -> str:
    """A path that can be printed: file systems allow names that are not text, which no terminal can encode."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def _plain(name: str) -> str:
    return value(name)[1:-1]
