"""torch's own translations, read once.

For each export torch reads the source of a thousand functions anew to learn their signatures, which takes more than
half of the time of exporting a small model.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["read_once"]


@contextmanager
def read_once() -> Iterator[None]:
    """Within it, torch.onnx gets a copy of the table that it made the first time.

    Where a release of torch keeps no such table, it does nothing.
    """
    try:
        from torch.onnx._internal.exporter import _registration
    except ImportError:
        yield
        return
    registry: Any = getattr(_registration, "ONNXRegistry", None)
    original = vars(registry).get("from_torchlib") if registry is not None else None
    if original is None:
        yield
        return

    def from_torchlib(cls: Any, *args: Any, **kwargs: Any) -> Any:
        known = _made(original, cls, args, tuple(kwargs.items()))
        own = copy.copy(known)
        # What is registered by hand goes into the lists.
        own.functions = {target: list(entries) for target, entries in known.functions.items()}
        return own

    registry.from_torchlib = classmethod(from_torchlib)
    try:
        yield
    finally:
        registry.from_torchlib = original


@functools.cache
def _made(original: Any, cls: Any, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]) -> Any:
    return original.__get__(None, cls)(*args, **dict(kwargs))
