"""The update rules in other frameworks: as optimizers of PyTorch, as transformations of optax, from Keras's settings.

The modules carry the names of the frameworks, and are imported when first used: `edgeopt.compat.torch` imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeopt.compat import keras, optax, torch

__all__ = ["keras", "optax", "torch"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"edgeopt.compat.{name}")
    raise AttributeError(f"module 'edgeopt.compat' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
