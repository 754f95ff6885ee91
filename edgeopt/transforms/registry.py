"""Every gradient transform by name. The contract tests run over this table."""

from __future__ import annotations

from edgeopt.components import Kind
from edgeopt.transforms.base import Transform
from edgeopt.transforms.clip import ClipByGlobalNorm, ClipByValue

__all__ = ["TRANSFORM", "TRANSFORMS"]

TRANSFORMS: dict[str, type[Transform]] = {
    "clip_by_global_norm": ClipByGlobalNorm,
    "clip_by_value": ClipByValue,
}

TRANSFORM = Kind(
    name="transform",
    base=Transform,  # type: ignore[type-abstract]  # only instances of it are made
    registry=TRANSFORMS,
    example="edgeopt.transforms.ClipByGlobalNorm(1.0)",
    aliases={"clip_grad_norm": "clip_by_global_norm", "clip_grad_value": "clip_by_value"},
)
