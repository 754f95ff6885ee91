"""From words on the command line to losses, optimizers and the like: `adamw:weight_decay=0.01,amsgrad=true`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import TypeVar

import typer

__all__ = ["build"]

T = TypeVar("T")

# A comma that no bracket follows before the next opens one: `a=[1,2],b=3` has one.
OUTER_COMMA = re.compile(r",(?![^\[]*\])")


def build(kind: str, registry: Mapping[str, type[T]], text: str, **given: object) -> T:
    """Make the member of a registry that `text` describes.

    Args:
        kind: What it is, for messages: `optimizer`.
        registry: Classes by name.
        text: A name, or a name, a colon and settings: `NAME:key=value,key=value`, a value being
            a number, true, false, a list in brackets, or a word.
        given: More settings, decided elsewhere.

    Raises:
        typer.BadParameter: Unknown name or setting, or a setting is missing.
        ConfigurationError: A value that the class refuses.
    """
    name, _, listing = text.partition(":")
    if name not in registry:
        raise typer.BadParameter(f"there is no {kind} {name!r}; choose from {', '.join(sorted(registry))}")
    cls = registry[name]
    settings = {**dict(_setting(part, text) for part in OUTER_COMMA.split(listing) if part), **given}
    known = {field.name: field for field in fields(cls) if field.init} if is_dataclass(cls) else {}
    unknown = [key for key in settings if key not in known]
    if unknown:
        choices = ", ".join(key for key in known if key not in given) or "none"
        raise typer.BadParameter(f"{name} has no setting {unknown[0]!r}; its settings: {choices}")
    missing = [
        key
        for key, field in known.items()
        if field.default is MISSING and field.default_factory is MISSING and key not in settings
    ]
    if missing:
        raise typer.BadParameter(f"{name} needs {', '.join(missing)}: {name}:{missing[0]}=...")
    return cls(**settings)


def _setting(part: str, text: str) -> tuple[str, object]:
    key, equals, value = part.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r}: settings look like key=value, got {part!r}")
    try:
        parsed = json.loads(value)
    except json.JSONDecodeError:
        return key.strip(), value
    return key.strip(), tuple(parsed) if isinstance(parsed, list) else parsed
