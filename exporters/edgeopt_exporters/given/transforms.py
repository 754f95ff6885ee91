"""Transforms of gradients, and functions of other frameworks that are taken for some."""

from __future__ import annotations

from typing import Any

from edgeopt.components import described
from edgeopt.errors import ConfigurationError
from edgeopt.transforms import TRANSFORM, Transform

__all__ = ["as_transforms"]


def as_transforms(transforms: Any) -> tuple[Transform, ...]:
    """The transforms that were given, one or several: edgeopt's, their classes with a default for all, or their names.

    Raises:
        ConfigurationError: One is something else.
    """
    if hasattr(transforms, "_fields") or (callable(transforms) and not isinstance(transforms, (type, Transform))):
        raise ConfigurationError(
            f"A transform must be an array program that becomes a graph, and {described(transforms)} is none; give "
            "edgeopt.transforms.ClipByGlobalNorm(1.0) or ClipByValue(1.0)."
        )
    return TRANSFORM.several(transforms)
